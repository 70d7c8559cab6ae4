package workertest

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If the first attempt is interrupted, all later attempts report it, and the parked message carries it. A message that was
// never redelivered has no mark.
func TestRedeliveredSurvivesRetries(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		if err := dial(t, b.URL).Declare(t.Context(), strategy.Route.Topology(queue)); err != nil {
			t.Fatal(err)
		}
		r.publish("", queue, amqp.Publishing{MessageId: "interrupted"})
		d, ok, err := r.Get(queue, false) // an attempt that does not end
		if err != nil || !ok {
			t.Fatalf("cannot get the message: %v", err)
		}
		if err := r.Nack(d.DeliveryTag, false, true); err != nil {
			t.Fatal(err)
		}
		r.publish("", queue, amqp.Publishing{MessageId: "new"})
		h := newScript(func(*reprise.Delivery) error { return errScripted })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(3)})
		for _, m := range h.wait(t, 6) {
			if want := m.MessageID == "interrupted"; m.Redelivered != want {
				t.Errorf("message %s, attempt %d: got redelivered %t, want %t", m.MessageID, m.Attempt, m.Redelivered, want)
			}
			if _, found := m.Headers[reprise.HeaderRedelivered]; found {
				t.Errorf("message %s, attempt %d: the handler received the mark as a header", m.MessageID, m.Attempt)
			}
		}
		for range 2 {
			parked := r.take(queue + ".failed")
			if got, want := parked.Headers[reprise.HeaderRedelivered] == true, parked.MessageId == "interrupted"; got != want {
				t.Errorf("parked message %s: got mark %t, want %t", parked.MessageId, got, want)
			}
		}
	})
}
