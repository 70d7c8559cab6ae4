package chaos

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A broker under full load writes and compacts tables all the time. SIGKILL can leave each of its states on the disk. The
// directory of the stopped process is such a state. A broker must start on a copy of it, with all confirmed messages.
func TestImagesOfBusyBrokerOpen(t *testing.T) {
	dir := t.TempDir() + "/data"
	p := start(t, dir)
	images := *rounds
	if testing.Short() {
		images = min(images, 2)
	}
	c := newChurn(t, p)
	for i := range images {
		began := c.confirmed.Load()
		testkit.Eventually(t, time.Minute, func() bool { return c.confirmed.Load() > began+2000 })
		image := fmt.Sprint(t.TempDir(), "/image-", i)
		kept := c.kept.Load()
		copyStopped(t, p, dir, image)
		if found := messagesOf(t, image, keptQueue); found < kept {
			t.Errorf("image %d: got %d messages, want at least %d", i, found, kept)
		}
		if err := os.RemoveAll(image); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.ended()
	c.group.Wait()
}

// copyStopped stops a process, copies its data directory, and continues the process.
func copyStopped(t *testing.T, p *process, from, to string) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("broker did not stop: %v, %v", status, err)
	}
	_ = os.Remove(from + "/control.sock") // CopyFS does not copy sockets
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// messagesOf starts a broker on a data directory, and returns the number of messages in a queue.
func messagesOf(t *testing.T, dir, queue string) int64 {
	t.Helper()
	b, err := broker.New(broker.Config{Store: disk.Dir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Shutdown(context.Background())
	for _, q := range b.Queues() {
		if q.Name == queue {
			return int64(q.Ready)
		}
	}
	return 0
}

const (
	churnQueue, keptQueue = "churn", "kept"

	churnBody   = 10 << 10
	churnWindow = 2000 // number of messages that stay in the queue long enough to reach a table
)

// churn publishes to a broker as fast as possible, and consumes most of the messages.
type churn struct {
	confirmed, kept atomic.Int64 // numbers of confirmed messages; kept counts those in keptQueue
	group           sync.WaitGroup
}

func newChurn(t *testing.T, p *process) *churn {
	t.Helper()
	c := new(churn)
	for _, queue := range []string{churnQueue, keptQueue} {
		ch := channelOf(t, p)
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		c.publish(ch, queue)
	}
	c.consume(t, channelOf(t, p))
	return c
}

func channelOf(t *testing.T, p *process) *amqp.Channel {
	t.Helper()
	conn, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (c *churn) publish(ch *amqp.Channel, queue string) {
	flight := make(chan *amqp.DeferredConfirmation, 200)
	c.group.Go(func() {
		defer close(flight)
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, churnBody)}
		if queue == keptQueue {
			m.Body = m.Body[:100]
		}
		for {
			confirm, err := ch.PublishWithDeferredConfirm("", queue, false, false, m)
			if err != nil {
				return // the broker was killed
			}
			flight <- confirm
		}
	})
	c.group.Go(func() {
		for confirm := range flight {
			switch <-confirm.Done(); {
			case !confirm.Acked():
			case queue == keptQueue:
				c.kept.Add(1)
			default:
				c.confirmed.Add(1)
			}
		}
	})
}

// consume acknowledges each message after churnWindow further messages.
func (c *churn) consume(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	if err := ch.Qos(2*churnWindow, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(churnQueue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.group.Go(func() {
		for d := range deliveries {
			if d.DeliveryTag <= churnWindow {
				continue
			}
			if err := ch.Ack(d.DeliveryTag-churnWindow, false); err != nil {
				return // the broker was killed
			}
		}
	})
}
