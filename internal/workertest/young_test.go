package workertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// The original is not replaced before RabbitMQ can no longer lose the new lease queue.
func TestOriginalOutlivesYoungLeaseQueue(t *testing.T) {
	const age = 4 * time.Second
	testkit.DistrustNewQueuesFor(t, age)
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		queue := r.declareQueue()
		took := make(chan time.Duration, 1)
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: queue, Concurrency: 1, Prefetch: 1, Lease: time.Minute,
			Handler: reprise.HandlerFunc(func(ctx context.Context, _ *reprise.Delivery) error {
				began := time.Now()
				err := reprise.SaveCheckpoint(ctx, []byte("page 4"))
				took <- time.Since(began)
				return err
			}),
		})
		time.Sleep(time.Minute)
		r.publish("", queue, amqp.Publishing{})
		if d := <-took; d < age || d > age+time.Second {
			t.Errorf("the original was replaced after %s, want %s", d, age)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// RabbitMQ can lose a young wait queue with its confirmed copies if its node is killed. The retry and other messages do not wait, but the
// original stays in its queue, also during a drain.
func TestOriginalOutlivesYoungWaitQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration // from the first retry to the loss of the connection, or to the drain
		lost  bool
		again int // attempts after the loss; the first one fails again
	}{
		"lost while young": {after: 3 * time.Second, lost: true, again: 2},
		"lost later":       {after: 5 * time.Second, lost: true},
		"drained":          {after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			const age = 4 * time.Second
			testkit.DistrustNewQueuesFor(t, age)
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				var network flaky
				c := dial(network.wrap)
				s := newScript(func(m *reprise.Delivery) error {
					if m.Attempt == 1 && m.MessageID == "fails" {
						return errors.New("simulated failure")
					}
					return nil
				})
				queue := r.declareQueue()
				stop := start(t, c, reprise.WorkerConfig{
					Queue: queue, Handler: s, Concurrency: 1, Prefetch: 1, Policy: reprise.Policy{Backoff: backoff.Fixed(10 * time.Millisecond)},
				})
				failed := time.Now()
				r.publish("", queue, amqp.Publishing{MessageId: "fails"})
				r.publish("", queue, amqp.Publishing{MessageId: "other"})
				s.wait(t, 3)
				if took := time.Since(failed); took > time.Second {
					t.Errorf("the retry and the other message took %s, want no wait for the age of the queue", took)
				}
				time.Sleep(tc.after - time.Since(failed))
				if tc.lost {
					network.cut(0, false)
					network.cut(1, false)
					time.Sleep(time.Minute)
					if again := s.count() - 3; again != tc.again {
						t.Errorf("attempts after the loss: got %d, want %d", again, tc.again)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(failed); !tc.lost && (took < age || took > age+time.Second) {
					t.Errorf("the drain ended %s after the failure, want %s", took, age)
				}
				if n := r.depth(queue); n > 0 {
					t.Errorf("got %d messages in the queue, want 0", n)
				}
			})
		})
	}
}

// Even if all messages fail, the worker does not wait for the age of the wait queue.
func TestYoungWaitQueueDoesNotStopWorker(t *testing.T) {
	const age = 4 * time.Second
	testkit.DistrustNewQueuesFor(t, age)
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		s := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return errors.New("simulated failure")
			}
			return nil
		})
		const messages = 1000
		queue := r.declareQueue()
		for range messages {
			r.publish("", queue, amqp.Publishing{})
		}
		began := time.Now()
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: queue, Handler: s, Concurrency: 1, Prefetch: 1, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Second)},
		})
		s.wait(t, 2*messages)
		if took := time.Since(began); took >= age {
			t.Errorf("all messages were retried after %s, which is later than the age of %s", took, age)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := r.depth(queue); n > 0 {
			t.Errorf("got %d messages in the queue, want 0", n)
		}
	})
}

// A worker that keeps many originals still receives only about Prefetch messages in advance.
func TestYoungWaitQueueLimitsPrefetch(t *testing.T) {
	testkit.DistrustNewQueuesFor(t, 4*time.Second)
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const messages, prefetch, handled = 2000, 16, 500
		blocked, unblock, n := make(chan struct{}), make(chan struct{}), 0
		handler := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
			time.Sleep(time.Millisecond)
			if n++; n == handled+1 {
				close(blocked)
				<-unblock
			}
			return errors.New("simulated failure")
		})
		queue := r.declareQueue()
		for range messages {
			r.publish("", queue, amqp.Publishing{})
		}
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: queue, Handler: handler, Concurrency: 1, Prefetch: prefetch, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
		})
		<-blocked
		synctest.Wait()
		if got := messages - handled - r.depth(queue); got > 2*prefetch {
			t.Errorf("messages received and not handled: got %d, want at most %d", got, 2*prefetch)
		}
		close(unblock)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A drain does not wait for originals that it can no longer acknowledge.
func TestDrainAfterLossDoesNotWaitForYoungWaitQueue(t *testing.T) {
	const age = 4 * time.Second
	testkit.DistrustNewQueuesFor(t, age)
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var network flaky
		s := newScript(func(*reprise.Delivery) error { return errors.New("simulated failure") })
		queue := r.declareQueue()
		stop := start(t, dial(network.wrap), reprise.WorkerConfig{
			Queue: queue, Handler: s, Concurrency: 1, Prefetch: 1, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
		})
		failed := time.Now()
		r.publish("", queue, amqp.Publishing{})
		s.wait(t, 1)
		synctest.Wait()
		network.cut(0, true)
		network.cut(1, true)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(failed); took >= age {
			t.Errorf("the drain ended after %s, although nothing was left to acknowledge", took)
		}
	})
}

// A burst whose copy is in a young queue occupies several places of the prefetch.
func TestYoungWaitQueueOfBurstDoesNotStopWorker(t *testing.T) {
	const age = 4 * time.Second
	testkit.DistrustNewQueuesFor(t, age)
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const prefetch = 16
		s := newScript(func(m *reprise.Delivery) error {
			if m.Type == "burst" {
				return errors.New("simulated failure")
			}
			return nil
		})
		queue := r.declareQueue()
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: queue, Handler: s, Concurrency: 4, Prefetch: prefetch, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
			Debounce: &reprise.Debounce{Window: 100 * time.Millisecond, Key: reprise.ContentKey},
		})
		began := time.Now()
		for range prefetch {
			r.publish("", queue, amqp.Publishing{Type: "burst", Body: []byte("same")})
		}
		r.publish("", queue, amqp.Publishing{Body: []byte("other")})
		s.wait(t, 2)
		if took := time.Since(began); took >= age {
			t.Errorf("the other message was handled after %s", took)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Each few kept originals belong to another consumer of the channel, which RabbitMQ acknowledges separately. None is lost when the
// worker stops.
func TestOriginalsOfManyConsumersAreAcknowledged(t *testing.T) {
	testkit.DistrustNewQueuesFor(t, 4*time.Second)
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		queue := testkit.Name(t, "work")
		r.declare(c, topology.Buckets{}.Topology(queue))
		s := newScript(func(*reprise.Delivery) error { return errors.New("simulated failure") })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Handler: s, Concurrency: 1, Prefetch: 1, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
		})
		const messages = 500
		for range messages {
			r.publish("", queue, amqp.Publishing{DeliveryMode: amqp.Persistent})
		}
		s.wait(t, messages)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := r.depth(queue); n > 0 {
			t.Errorf("got %d messages in the work queue, want 0", n)
		}
	})
}
