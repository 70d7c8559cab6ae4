package workertest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestPublishSetsATimestamp(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		began, own := time.Now().Truncate(time.Second), time.Unix(1_700_000_000, 0)
		published := func(err error) amqp.Delivery {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return r.take(queue)
		}
		m := &reprise.Message{RoutingKey: queue}
		for range 2 {
			if d := published(c.Publish(t.Context(), m)); d.Timestamp.Before(began) || d.Timestamp.After(time.Now()) {
				t.Errorf("timestamp: got %s, want the time of the publish", d.Timestamp)
			}
			if !m.Timestamp.IsZero() {
				t.Errorf("timestamp of the message after Publish: got %s, want zero", m.Timestamp)
			}
		}
		if d := published(c.PublishBatch(t.Context(), []*reprise.Message{{RoutingKey: queue}})); d.Timestamp.Before(began) {
			t.Errorf("timestamp in a batch: got %s, want at least %s", d.Timestamp, began)
		}
		if d := published(c.Publish(t.Context(), &reprise.Message{RoutingKey: queue, Timestamp: own, NoTimestamp: true})); !d.Timestamp.Equal(own) {
			t.Errorf("timestamp: got %s, want %s", d.Timestamp, own)
		}
		if d := published(c.Publish(t.Context(), &reprise.Message{RoutingKey: queue, NoTimestamp: true})); !d.Timestamp.IsZero() {
			t.Errorf("timestamp: got %s, want none", d.Timestamp)
		}
	})
}
