package presettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

const workRetryTimeout = 2 * time.Minute

// otherProgram is a program that implements the design without Reprise, with literal names and arguments. It rejects failed
// messages.
type otherProgram struct {
	t    *testing.T
	conn *amqp.Connection
	ch   *amqp.Channel
	pre  string // prefix of all names
}

func newOther(t *testing.T, b testkit.Target, prefix string) *otherProgram {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := &otherProgram{t: t, conn: conn, pre: prefix}
	o.open()
	o.remove()
	t.Cleanup(func() {
		o.open()
		o.remove()
		_ = conn.Close()
	})
	return o
}

func (o *otherProgram) open() {
	o.t.Helper()
	if o.ch != nil {
		_ = o.ch.Close()
	}
	ch, err := o.conn.Channel()
	if err != nil {
		o.t.Fatal(err)
	}
	o.ch = ch
}

func (o *otherProgram) remove() {
	o.t.Helper()
	for _, q := range []string{"WorkQueue", "RetryQueue", "WorkQueue.failed"} {
		if _, err := o.ch.QueueDelete(o.pre+q, false, false, false); err != nil {
			o.t.Fatal(err)
		}
	}
	for _, e := range []string{"WorkExchange", "RetryExchange"} {
		if err := o.ch.ExchangeDelete(o.pre+e, false, false); err != nil {
			o.t.Fatal(err)
		}
	}
}

// declare declares the design.
func (o *otherProgram) declare(kind, key string, durable bool, ttl any, more amqp.Table) error {
	with := func(args amqp.Table) amqp.Table {
		maps.Copy(args, more)
		return args
	}
	_, err1 := o.ch.QueueDeclare(o.pre+"WorkQueue", true, false, false, false, with(amqp.Table{"x-dead-letter-exchange": o.pre + "RetryExchange"}))
	if err1 != nil {
		o.open()
	}
	_, err2 := o.ch.QueueDeclare(o.pre+"RetryQueue", true, false, false, false, with(amqp.Table{"x-dead-letter-exchange": o.pre + "WorkExchange", "x-message-ttl": ttl}))
	if err2 != nil {
		o.open()
	}
	err := errors.Join(err1, err2)
	for _, name := range []string{"Work", "Retry"} {
		if e := o.ch.ExchangeDeclare(o.pre+name+"Exchange", kind, durable, false, false, false, nil); e != nil {
			err = errors.Join(err, e)
			o.open()
		}
		if e := o.ch.QueueBind(o.pre+name+"Queue", key, o.pre+name+"Exchange", false, nil); e != nil {
			err = errors.Join(err, e)
			o.open()
		}
	}
	return err
}

func (o *otherProgram) publish(exchange, key string, msg amqp.Publishing) {
	o.t.Helper()
	if err := o.ch.PublishWithContext(o.t.Context(), exchange, key, true, false, msg); err != nil {
		o.t.Fatal(err)
	}
}

// get waits for the next message of a queue and leaves it unacknowledged.
func (o *otherProgram) get(queue string) amqp.Delivery {
	o.t.Helper()
	var d amqp.Delivery
	testkit.Eventually(o.t, workRetryTimeout, func() (err error) {
		found := false
		if d, found, err = o.ch.Get(o.pre+queue, false); err == nil && !found {
			err = fmt.Errorf("queue %s has no message", queue)
		}
		return err
	})
	return d
}

// reject receives the next message of WorkQueue and rejects it as failed.
func (o *otherProgram) reject() amqp.Delivery {
	o.t.Helper()
	d := o.get("WorkQueue")
	if err := d.Reject(false); err != nil {
		o.t.Fatal(err)
	}
	return d
}

// attempts is a handler that always fails. It records the number of each attempt.
type attempts struct {
	mu   sync.Mutex
	seen []int
}

func (a *attempts) Handle(_ context.Context, m *reprise.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, m.Attempt)
	return fmt.Errorf("attempt %d failed", m.Attempt)
}

func (a *attempts) all() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]int{}, a.seen...)
}

// startWorker runs a Reprise worker until the test ends or stop is called. It returns when the worker consumes.
func startWorker(t *testing.T, b testkit.Target, p preset.WorkRetry, cfg reprise.WorkerConfig) (stop func()) {
	t.Helper()
	consuming := make(chan struct{})
	once := sync.OnceFunc(func() { close(consuming) })
	c, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Observer: reprise.ObserverFunc(func(e reprise.Event) {
		if e.Kind == reprise.EventConsuming {
			once()
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Queue, cfg.Strategy = p.Queue(), p.Strategy()
	w, err := reprise.NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.WithoutCancel(t.Context())) }()
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), workRetryTimeout)
		defer cancel()
		if err := errors.Join(w.Shutdown(ctx), <-ended, c.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-consuming:
	case <-time.After(workRetryTimeout):
		t.Fatal("worker does not consume")
	}
	return stop
}
