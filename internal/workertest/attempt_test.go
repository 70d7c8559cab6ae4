package workertest

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If the failed queue rejects a message that is parked without an attempt, the worker still processes the next message.
func TestWorkerContinuesWhileFailedQueueIsFull(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		messages []amqp.Publishing // messages that are parked without an attempt
		crashes  int               // number of crashes of each message
		limit    int
	}{
		"undecodable":   {messages: []amqp.Publishing{{MessageId: "bad", Headers: amqp.Table{"panic": "read"}}}},
		"crash limit":   {messages: []amqp.Publishing{{MessageId: "bad"}, {MessageId: "bad, too"}}, crashes: 2, limit: 2},
		"handled alone": {messages: []amqp.Publishing{{MessageId: "fails"}}, crashes: 2, limit: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{})
				strategy.Marks = panickingMarks{}
				full := topology.Queue{Name: queue + ".failed", Args: topology.Table{"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}}
				work := topology.Queue{Name: queue, Args: topology.Table{"x-queue-type": "quorum"}}
				existing := topology.Topology{Queues: []topology.Queue{work, full}}
				c := dial(t, b.URL)
				if err := c.Declare(t.Context(), existing); err != nil {
					t.Fatal(err)
				}
				r.publish("", queue+".failed", amqp.Publishing{MessageId: "first"})
				for _, m := range tc.messages {
					r.publish("", queue, m)
				}
				for range tc.crashes {
					r.crash(queue, len(tc.messages))
				}
				h := newScript(func(m *reprise.Delivery) error {
					if m.MessageID == "fails" {
						return reprise.Park(errScripted)
					}
					return nil
				})
				start(t, c, reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: strategy, Topology: existing, CrashLimit: tc.limit, ConsumerTimeout: time.Minute,
				})
				r.publish("", queue, amqp.Publishing{MessageId: "next"})
				testkit.Eventually(t, timeout, func() error {
					for _, m := range h.wait(t, h.count()) {
						if m.MessageID == "next" {
							return nil
						}
					}
					return fmt.Errorf("handler saw %d messages", h.count())
				})
				if n := r.depth(queue + ".failed"); n != 1 {
					t.Fatalf("failed queue has %d messages, want 1", n)
				}
				r.take(queue + ".failed")
				for range tc.messages { // the failed queue now has room for each message
					if got := r.take(queue + ".failed"); got.MessageId == "next" {
						t.Errorf("message %q must not be parked", got.MessageId)
					}
				}
			})
		})
	}
}

// crash receives n messages from a queue, and closes the channel without settling them. A worker counts this as a crash of
// each message.
func (r *raw) crash(queue string, n int) {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	for range n {
		testkit.Eventually(r.t, timeout, func() error {
			if _, ok, err := ch.Get(queue, false); err != nil || !ok {
				return fmt.Errorf("queue %s has no message: %v", queue, err)
			}
			return nil
		})
	}
	if err := ch.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// An unconfirmed copy does not block the worker. This applies to the copy of a message that is parked without an attempt,
// and to the copy of a message that the worker moves to the end of its queue.
func TestWorkerContinuesWhileCopyIsUnconfirmed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queueType, muted string
		crashes, limit   int
	}{
		"parked": {queueType: "quorum", muted: "work.failed", crashes: 5, limit: 5},
		"moved":  {queueType: "classic", muted: "work", crashes: 1, limit: 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				m := newConfirmGate()
				m.mute(tc.muted)
				c := dial(m.intercept)
				work := topology.Topology{Queues: []topology.Queue{{Name: "work", Args: topology.Table{"x-queue-type": tc.queueType}}}}
				if err := c.Declare(t.Context(), work); err != nil {
					t.Fatal(err)
				}
				r.publish("", "work", amqp.Publishing{MessageId: "bad"})
				for range tc.crashes {
					r.crash("work", 1)
				}
				h := newScript(func(*reprise.Delivery) error { return nil })
				start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Topology: work, CrashLimit: tc.limit})
				r.publish("", "work", amqp.Publishing{MessageId: "next"})
				time.Sleep(5 * time.Minute)
				handled := 0
				for _, m := range h.wait(t, h.count()) {
					if m.MessageID == "next" {
						handled++
					}
				}
				if handled != 1 {
					t.Errorf("next message was handled %d times, want 1", handled)
				}
				// The worker acts before the acknowledgement timeout, because the timeout would add a delivery to the
				// counts of its other messages.
				time.Sleep(3 * time.Hour)
				if n := c.log.count("consumer cancelled") + c.log.count("consuming interrupted"); n != 0 {
					t.Errorf("broker ended the consumption %d times, want 0", n)
				}
				m.release(t)
			})
		})
	}
}
