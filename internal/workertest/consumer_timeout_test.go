package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Messages that wait behind a slow handler do not cause an acknowledgement timeout. The worker requeues them before the
// acknowledgement timeout and processes them later. The log warns about the slow handler.
func TestWorkerRequeuesDeliveriesBeforeConsumerTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error { return nil })
		slow := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			if m.MessageID == "0" {
				time.Sleep(29 * time.Minute) // the acknowledgement timeout of the broker is 30 minutes
			} else {
				time.Sleep(4 * time.Minute)
			}
			return h.Handle(ctx, m)
		})
		events := &events{}
		c := dial(func(c *reprise.Config) { c.Observer = events })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: slow})
		for i := range 10 {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		time.Sleep(2 * time.Hour)
		seen := map[string]int{}
		for _, m := range h.wait(t, 10) {
			seen[m.MessageID]++
		}
		if len(seen) != 10 || h.count() != 10 {
			t.Errorf("got %d attempts of messages %v, want 1 attempt of each of 10 messages", h.count(), seen)
		}
		if n := c.log.count("consuming interrupted"); n != 0 {
			t.Errorf("channel was lost %d times, want 0", n)
		}
		if n := c.log.count("consumer timeout is near"); n == 0 {
			t.Error("log contains no warning")
		}
		if near := events.of(reprise.EventTimeoutNear); len(near) == 0 || near[0].MessageID != "0" || near[0].Attempt != 1 ||
			near[0].Took < 24*time.Minute || near[0].Took > 26*time.Minute {
			t.Errorf("events: got %v, want the first attempt of message 0 after 24 to 26 minutes", near)
		}
		if n := c.log.count("waited too long to begin"); n == 0 {
			t.Error("worker requeued no delivery")
		}
	})
}

// A handler that hangs beyond the acknowledgement timeout occupies one slot. The worker does not handle its message again,
// handles the other messages, and reports the hang until the handler returns.
func TestHungHandlerDoesNotSpread(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"with an ID": "hung", "without an ID": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				var runs atomic.Int32
				end := make(chan struct{})
				h := newScript(func(m *reprise.Delivery) error {
					if string(m.Body) == "hangs" {
						runs.Add(1)
						<-end
					}
					return nil
				})
				c := dial()
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Prefetch: 2})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- w.Run(t.Context()) }()
				c.log.wait(t, "consuming", 1)
				r.publish("", "work", amqp.Publishing{MessageId: id, Body: []byte("hangs")})
				time.Sleep(5 * time.Hour)
				if n := runs.Load(); n != 1 {
					t.Errorf("handlers of the message: got %d, want 1", n)
				}
				if err := w.Status().Err; !errors.Is(err, reprise.ErrStillRunning) {
					t.Errorf("Consuming: got %v, want ErrStillRunning", err)
				}
				if c.log.count("message is still being handled") == 0 {
					t.Error("log does not report the hang")
				}
				before := h.count()
				for range 5 {
					r.publish("", "work", amqp.Publishing{})
				}
				time.Sleep(time.Minute)
				if n := h.count() - before; n != 5 {
					t.Errorf("other messages: %d were handled, want 5", n)
				}
				close(end)
				time.Sleep(time.Hour)
				if err := w.Status().Err; err != nil {
					t.Errorf("Consuming after the handler has returned: %v", err)
				}
				if n := r.depth("work"); n != 0 {
					t.Errorf("messages in the queue: got %d, want 0", n)
				}
				if err := w.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The other messages of a burst whose handler hangs are not handled again either.
func TestHungHandlerOfBurstDoesNotSpread(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var runs atomic.Int32
		end := make(chan struct{})
		h := newScript(func(*reprise.Delivery) error {
			runs.Add(1)
			<-end
			return nil
		})
		start(t, dial(), reprise.WorkerConfig{
			Queue: "work", Handler: h, Concurrency: 3,
			Debounce: &reprise.Debounce{Window: time.Second, Key: func(*reprise.Delivery) string { return "equal" }},
		})
		for i := range 3 {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i), Body: fmt.Append(nil, i)})
		}
		time.Sleep(5 * time.Hour)
		if n := runs.Load(); n != 1 {
			t.Errorf("handlers of the burst: got %d, want 1", n)
		}
		close(end)
		time.Sleep(time.Hour)
		if n := r.depth("work"); n != 0 {
			t.Errorf("messages in the queue: got %d, want 0", n)
		}
	})
}

// Operators see that a worker holds a message that it cannot park, also after the end of a hang.
func TestStatusContainsBothReasonsToHold(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		list, stop := watching(t, dial())
		defer stop()
		end := make(chan struct{})
		start(t, dial(announced), reprise.WorkerConfig{
			Queue: "work", Concurrency: 2, Topology: topology.Topology{Queues: []topology.Queue{{Name: "work", Args: topology.Table{"x-queue-type": "quorum"}}}}, // does not dead-letter
			Handler: newScript(func(m *reprise.Delivery) error {
				if m.MessageID == "hangs" {
					<-end
					return nil
				}
				return errScripted
			}),
		})
		trouble := func(want string) {
			t.Helper()
			synctest.Wait()
			if all := workersOf(list, "work"); len(all) != 1 || !strings.Contains(all[0].Trouble, want) || want == "" && all[0].Trouble != "" {
				t.Errorf("after %s: got %+v, want the trouble %q", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), all, want)
			}
		}
		r.publish("", "work", amqp.Publishing{MessageId: "hangs"})
		time.Sleep(32 * time.Minute)
		trouble(reprise.ErrStillRunning.Error())
		r.publish("", "work", amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("x", 131_020)}})
		time.Sleep(time.Minute)
		trouble(reprise.ErrCopyRefused.Error())
		close(end)
		time.Sleep(5 * time.Minute)
		trouble(reprise.ErrCopyRefused.Error())
	})
}

// Without an acknowledgement timeout, the worker neither requeues messages nor warns.
func TestWorkerWithoutConsumerTimeoutRequeuesNoDeliveries(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error {
			time.Sleep(9 * time.Minute)
			return nil
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, ConsumerTimeout: -1})
		for range 3 {
			r.publish("", "work", amqp.Publishing{})
		}
		time.Sleep(28 * time.Minute)
		h.wait(t, 3)
		if n := c.log.count("consumer timeout is near") + c.log.count("waited too long to begin"); n != 0 {
			t.Errorf("got %d warnings, want 0", n)
		}
	})
}

// If messages wait for a slow Limiter, the worker requeues them before the acknowledgement timeout, so that each message is
// processed once.
func TestSlowLimiterDoesNotDuplicateMessages(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]reprise.WorkerConfig{
		"every 10 minutes": {Limiter: rate.NewLimiter(rate.Every(10*time.Minute), 1)},
		"every hour":       {Limiter: rate.NewLimiter(rate.Every(time.Hour), 1)},
		"sleeps an hour":   {Limiter: sleepingLimiter(time.Hour)},
		"debounced": {
			Limiter:  rate.NewLimiter(rate.Every(10*time.Minute), 1),
			Debounce: &reprise.Debounce{Window: time.Minute, Key: func(m *reprise.Delivery) string { return m.MessageID }},
		},
		"several at once": {Limiter: rate.NewLimiter(rate.Every(10*time.Minute), 1), Concurrency: 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				const messages = 10
				h := newScript(func(m *reprise.Delivery) error { return nil })
				c := dial(func(c *reprise.Config) { c.Heartbeat = time.Hour })
				cfg.Queue, cfg.Handler = "work", h
				start(t, c, cfg)
				for i := range messages {
					r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
				}
				time.Sleep(24 * time.Hour)
				seen := map[string]int{}
				for _, m := range h.wait(t, h.count()) {
					seen[m.MessageID]++
				}
				if len(seen) != messages || h.count() != messages {
					t.Errorf("got %d attempts of messages %v, want 1 attempt of each of %d messages", h.count(), seen, messages)
				}
				if n := c.log.count("consumer cancelled"); n != 0 {
					t.Errorf("broker cancelled the consumer %d times, want 0", n)
				}
			})
		})
	}
}

// sleepingLimiter is a Limiter that delays each call by a fixed duration.
type sleepingLimiter time.Duration

func (l sleepingLimiter) Wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(l)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prober is a Breaker that requests probes after the first attempt.
type prober struct{ probing atomic.Bool }

func (p *prober) Allow() (func(error), time.Duration) {
	if p.probing.Load() {
		return func(error) {}, 0
	}
	return func(error) { p.probing.Store(true) }, 0
}

func (p *prober) Probing() bool { return p.probing.Load() }

// A message that must be processed alone waits for the other handlers. If the wait takes too long, the worker requeues the
// message before the acknowledgement timeout.
func TestWorkerRequeuesSuspectMessageBeforeConsumerTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const messages = 6
		var slow atomic.Bool
		h := newScript(func(m *reprise.Delivery) error {
			switch {
			case m.MessageID == "0" && slow.CompareAndSwap(false, true):
				time.Sleep(50 * time.Minute) // the acknowledgement timeout of the broker is 30 minutes
			case m.MessageID == "1" && m.Attempt == 1:
				return reprise.PauseFor(time.Second, errScripted)
			}
			return nil
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Breaker: &prober{}})
		for i := range messages {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		time.Sleep(25 * time.Minute)
		if near, back := c.log.count("consumer timeout is near"), c.log.count("waited too long to begin"); near != 1 || back != 1 {
			t.Errorf("got %d warnings about the handler and %d requeued deliveries, want 1 and 1", near, back)
		}
		time.Sleep(5 * time.Hour)
		seen := map[string]int{}
		for _, m := range h.wait(t, h.count()) {
			if m.Attempt == 1 {
				seen[m.MessageID]++
			}
		}
		for i := 1; i < messages; i++ {
			if n := seen[fmt.Sprint(i)]; n != 1 {
				t.Errorf("message %d was handled %d times, want 1", i, n)
			}
		}
	})
}
