package reprise_test

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestDepthIsWhatIsReady(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		queue := queueFor(t, r, c, topology.Table{})
		for range 3 {
			r.publish("", queue, amqp.Publishing{})
		}
		if _, ok, err := r.Get(queue, false); !ok || err != nil {
			t.Fatal(ok, err)
		}
		testkit.Eventually(t, patience, func() bool { n, err := c.Depth(t.Context(), queue); return n == 2 && err == nil })
		n, err := c.Depth(t.Context(), queue+".no")
		if missing, ok := errors.AsType[*reprise.UnroutableError](err); !ok || missing.RoutingKey != queue+".no" || n != 0 {
			t.Errorf("of no queue: %d, %v", n, err)
		}
	})
}
