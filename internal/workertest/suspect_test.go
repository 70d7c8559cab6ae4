package workertest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If the next message must be processed alone, the worker must not fetch and requeue a message in a debounce window
// indefinitely.
func TestDebounceCompletesBeforeSuspectMessage(t *testing.T) {
	b := testkit.Embedded(t)
	r := newRaw(t, b.URL)
	queue, strategy := r.names(topology.Buckets{})
	c := dial(t, b.URL)
	if err := c.Declare(t.Context(), strategy.Route.Topology(queue)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"sound", "suspect"} {
		r.publish("", queue, amqp.Publishing{MessageId: id, Body: []byte(id)})
	}
	for range 2 {
		crashWithTheSecond(t, b.URL, queue)
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 2 })
	}
	h := newScript(func(*reprise.Delivery) error { return nil })
	start(t, c, reprise.WorkerConfig{
		Queue: queue, Strategy: strategy, Handler: h,
		Debounce: &reprise.Debounce{Window: 50 * time.Millisecond, Key: reprise.ContentKey},
	})
	h.wait(t, 2)
}

// crashWithTheSecond receives two messages, requeues the first, and closes the connection without settling the second.
func crashWithTheSecond(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "tag", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := <-deliveries
	<-deliveries
	if err := ch.Cancel("tag", false); err != nil {
		t.Fatal(err)
	}
	if err := first.Nack(false, true); err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(1, 0, false); err != nil { // returns after the broker has received the nack
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}
