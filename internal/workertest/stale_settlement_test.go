package workertest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// heldHandler is a handler that waits in each attempt until the test provides the result.
type heldHandler struct {
	t       testing.TB
	running chan attempt
}

type attempt struct {
	m      *reprise.Delivery
	result chan<- error
}

func newHeldHandler(t testing.TB) heldHandler { return heldHandler{t, make(chan attempt)} }

func (h heldHandler) Handle(_ context.Context, m *reprise.Delivery) error {
	result := make(chan error)
	select {
	case h.running <- attempt{m, result}:
	case <-h.t.Context().Done():
		return nil
	}
	select {
	case err := <-result:
		return err
	case <-h.t.Context().Done(): // the test has failed
		return nil
	}
}

func (h heldHandler) next() attempt {
	h.t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	select {
	case a := <-h.running:
		return a
	case <-deadline.C:
		h.t.Fatal("handler got no message")
		return attempt{}
	}
}

// A handler may still run when the connection of its message is lost. On the new connection, the delivery tag of this
// message may belong to another message.
func TestStaleSettlementHasNoEffectAfterReconnect(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, tc := range []struct {
			name   string
			result error
		}{
			{"success", nil},
			{"failure", errScripted},
			{"park", reprise.Park(errScripted)},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{})
				proxy := testkit.NewProxy(t, b.URL)
				c := dial(t, proxy.URL())
				h := newHeldHandler(t)
				// The new message below occupies one of the two slots. Therefore the broker delivers each further
				// message only after the ack of the previous message.
				stop := start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Concurrency: 2, Prefetch: 2})

				r.publish("", queue, amqp.Publishing{MessageId: "old"})
				old := h.next() // tag 1 on the first connection

				// While the worker is disconnected, another client receives the old message, and a new message replaces
				// it.
				proxy.Refuse()
				proxy.Cut()
				var kept amqp.Delivery
				testkit.Eventually(t, timeout, func() (ok bool) {
					var err error
					if kept, ok, err = r.Get(queue, false); err != nil {
						t.Fatal(err)
					}
					return ok
				})
				if kept.MessageId != "old" || !kept.Redelivered {
					t.Fatalf("got message %q, redelivered %t; want old, true", kept.MessageId, kept.Redelivered)
				}
				r.publish("", queue, amqp.Publishing{MessageId: "new"})
				proxy.Resume()
				fresh := h.next() // tag 1 on the second connection
				if fresh.m.MessageID != "new" {
					t.Fatalf("got message %q, want new", fresh.m.MessageID)
				}

				old.result <- tc.result // settles tag 1 of the lost connection

				// The following messages need the slot of the old message. When they are delivered, any effect of the
				// stale settlement has therefore reached the broker.
				const more = 5
				var last attempt
				for i := range more {
					r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint("more-", i)})
					if last = h.next(); i < more-1 {
						last.result <- nil
					}
				}
				if tc.result != nil {
					c.log.wait(t, "copy dropped", 1)
				}

				// If the stale settlement had acknowledged the new message or the old message, this message would no longer
				// be in the queue.
				before := c.log.count("consuming")
				proxy.Cut()
				c.log.wait(t, "consuming", before+1)
				if err := kept.Nack(false, true); err != nil {
					t.Fatal(err)
				}
				fresh.result <- nil // also stale
				last.result <- nil
				again := map[string]int{}
				for range 3 {
					a := h.next()
					again[a.m.MessageID] = a.m.Attempt
					if !a.m.Redelivered {
						t.Errorf("message %s must be marked as redelivered", a.m.MessageID)
					}
					a.result <- nil
				}
				if want := map[string]int{"old": 1, "new": 1, "more-4": 1}; !maps.Equal(again, want) {
					t.Errorf("messages and attempts after the second reconnect: got %v, want %v", again, want)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if d, f := r.depth(queue), r.depth(queue+".failed"); d != 0 || f != 0 {
					t.Errorf("work queue has %d messages and failed queue %d, want 0 and 0", d, f)
				}
			})
		}
	})
}
