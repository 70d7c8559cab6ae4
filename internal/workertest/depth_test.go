package workertest

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestDepthReturnsReadyMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		queue := queueFor(t, r, c, topology.Table{})
		for range 3 {
			r.publish("", queue, amqp.Publishing{})
		}
		if _, ok, err := r.Get(queue, false); !ok || err != nil {
			t.Fatalf("message in the queue: got %t, %v; want true", ok, err)
		}
		testkit.Eventually(t, timeout, func() bool { n, err := c.Depth(t.Context(), queue); return n == 2 && err == nil })
		n, err := c.Depth(t.Context(), queue+".no")
		if e, ok := errors.AsType[*reprise.QueueError](err); !ok || e.Queue != queue+".no" || e.Code != 404 || n != 0 ||
			!strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "message") {
			t.Errorf("missing queue: got %d, %v; want a QueueError with code 404", n, err)
		}
		exclusive := testkit.Name(t, "exclusive")
		if _, err := r.QueueDeclare(exclusive, false, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
		_, err = c.Depth(t.Context(), exclusive)
		if e, ok := errors.AsType[*reprise.QueueError](err); !ok || e.Queue != exclusive || e.Code != 405 || strings.Contains(err.Error(), "message") {
			t.Errorf("exclusive queue of another connection: got %v, want a QueueError with code 405", err)
		}
	})
}
