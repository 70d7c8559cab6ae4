package brokertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// While memory is low, the broker blocks publishers and notifies them. When other clients have consumed messages, the
// publishers continue, and all messages arrive. The broker does not block connections that only consume.
func TestMemoryAlarmBlocksPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 100, 100_000
		b, publisher := start(t, broker.Config{MemoryLimit: n * size / 4})
		consumer := dial(t, b)
		blocked := publisher.NotifyBlocked(make(chan amqp.Blocking, 10))
		untouched := consumer.NotifyBlocked(make(chan amqp.Blocking, 10))
		ch := channel(t, publisher)
		must(t, declare(ch, "q", nil))
		must(t, ch.Confirm(false))
		confirms := ch.NotifyPublish(make(chan amqp.Confirmation, n))
		go func() {
			for range n {
				if ch.Publish("", "q", true, false, amqp.Publishing{Body: make([]byte, size)}) != nil {
					return
				}
			}
		}()

		if e := <-blocked; !e.Active || e.Reason != "low on memory" {
			t.Errorf("unexpected notification: %+v", e)
		}
		if ready := b.Queues()[0].Ready; ready > n/4+1 {
			t.Errorf("messages accepted during a memory alarm: got %d, want at most %d", ready, n/4+1)
		}

		deliveries, err := channel(t, consumer).ConsumeWithContext(context.Background(), "q", "", true, false, false, false, nil)
		must(t, err)
		for range n {
			<-deliveries
			<-confirms
		}
		if e := <-blocked; e.Active {
			t.Errorf("unexpected notification: %+v", e)
		}
		select {
		case e := <-untouched:
			t.Errorf("broker blocked a connection that only consumes: %+v", e)
		default:
		}
	})
}

func TestShutdownDuringMemoryAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{MemoryLimit: 1})
		blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 10))
		ch := channel(t, conn)
		must(t, declare(ch, "q", nil))
		must(t, ch.Publish("", "q", true, false, amqp.Publishing{}))
		go func() { _ = ch.Publish("", "q", true, false, amqp.Publishing{}) }() // exceeds the memory limit
		<-blocked
		began := time.Now()
		must(t, b.Shutdown(context.Background()))
		if took := time.Since(began); took > time.Second {
			t.Errorf("shutdown: got %v, want at most 1s", took)
		}
	})
}
