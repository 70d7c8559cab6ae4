package workertest

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// failingOnce is a Limiter whose second call waits for a signal and then fails.
type failingOnce struct {
	fail  chan struct{}
	asked atomic.Int32
}

func (l *failingOnce) Wait(ctx context.Context) error {
	if l.asked.Add(1) != 2 {
		return nil
	}
	select {
	case <-l.fail:
		return errors.New("no answer from Redis")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stuckLog is a log handler. For the message text, it calls begin and then blocks for two seconds.
type stuckLog struct {
	slog.Handler
	text  string
	begin func()
}

func (l stuckLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == l.text {
		l.begin()
		time.Sleep(2 * time.Second)
	}
	return l.Handler.Handle(ctx, r)
}

func (l stuckLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.Handler = l.Handler.WithAttrs(attrs)
	return l
}

// After a Limiter error, the worker pauses for one second and then calls the Limiter again, even if a slow logger delays the
// worker until the pause has expired.
func TestWorkerCallsFailedLimiterAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		limiter := &failingOnce{fail: make(chan struct{})}
		c := dial(func(c *reprise.Config) {
			c.Logger = slog.New(stuckLog{c.Logger.Handler(), "consumer timeout is near", func() { close(limiter.fail) }})
		})
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "slow" {
				time.Sleep(55 * time.Second)
			}
			return nil
		})
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Limiter: limiter, ConsumerTimeout: time.Minute})
		r.publish("", "work", amqp.Publishing{MessageId: "slow"})
		time.Sleep(30 * time.Second)
		r.publish("", "work", amqp.Publishing{MessageId: "next"})
		time.Sleep(time.Minute)
		if n := h.count(); n != 2 {
			t.Errorf("handled messages: got %d, want 2", n)
		}
	})
}

// trying is a Limiter that issues every second permit immediately.
type trying struct{ tried, waited, done atomic.Int32 }

func (l *trying) TryWait() bool { return l.tried.Add(1)%2 == 0 }

func (l *trying) Wait(context.Context) error { l.waited.Add(1); return nil }

func (l *trying) Done() { l.done.Add(1) }

// The worker calls Wait only if TryWait has not issued a permit, and returns each permit once.
func TestWorkerTriesLimiter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const messages = 20
		limiter := &trying{}
		h := newScript(func(*reprise.Delivery) error { return nil })
		stop := start(t, dial(), reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Limiter: limiter})
		for range messages {
			r.publish("", "work", amqp.Publishing{})
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		tried, waited, done := limiter.tried.Load(), limiter.waited.Load(), limiter.done.Load()
		if permits := tried/2 + waited; h.count() != messages || waited != (tried+1)/2 || done != permits {
			t.Errorf("handled %d messages, tried %d, waited %d, done %d", h.count(), tried, waited, done)
		}
	})
}
