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

// TestMessageIDIsTheSameOnEveryAttempt publishes messages without a message ID.
func TestMessageIDIsTheSameOnEveryAttempt(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name     string
		strategy topology.Strategy
		copies   bool
		queues   func(queue string) []string
	}{
		{"copies", topology.Strategy{Route: topology.Buckets{}}, true, func(q string) []string { return []string{q + ".wait.0-1000"} }},
		{"message ttl", topology.Strategy{Route: topology.MessageTTL{}}, true, func(q string) []string { return []string{q + ".wait"} }},
		{"requeue", topology.Strategy{Route: topology.Requeuing{}}, false, nil},
		{"dead-letter", topology.Strategy{Route: topology.DeadLettering{Delay: 20 * time.Millisecond}}, false, func(q string) []string { return []string{q + ".retry"} }},
	} {
		t.Run(way.name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r := newRaw(t, b.URL)
				queue := testkit.Name(t, "work")
				r.deleteQueues(queue, queue+".failed")
				if way.queues != nil {
					r.deleteQueues(way.queues(queue)...)
				}
				h := newScript(func(m *reprise.Delivery) error { return fmt.Errorf("error %d", m.Attempt) })
				start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: way.strategy, Policy: quick(3)})
				r.publish("", queue, amqp.Publishing{Body: []byte("one")})
				parked := r.take(queue + ".failed")
				attempts := h.wait(t, 3)
				for i, m := range attempts {
					if m.MessageID != attempts[0].MessageID || (m.MessageID != "") != way.copies {
						t.Errorf("message ID of attempt %d: got %q, want %q of the first attempt, and an ID only for copies", i+1, m.MessageID, attempts[0].MessageID)
					}
					if assigned := way.copies && i == 0; m.MessageIDAssigned != assigned {
						t.Errorf("attempt %d: got MessageIDAssigned %t, want %t", i+1, m.MessageIDAssigned, assigned)
					}
				}
				if parked.MessageId == "" || way.copies && parked.MessageId != attempts[0].MessageID {
					t.Errorf("parked message: got ID %q, want an ID, and for copies %q", parked.MessageId, attempts[0].MessageID)
				}

				// Equal messages have different IDs.
				if way.copies {
					r.publish("", queue, amqp.Publishing{Body: []byte("one")})
					if m := h.wait(t, 4)[3]; m.MessageID == "" || m.MessageID == attempts[0].MessageID {
						t.Errorf("second equal message: got ID %q, want an ID other than %q", m.MessageID, attempts[0].MessageID)
					}
				}
			})
		})
	}
}
