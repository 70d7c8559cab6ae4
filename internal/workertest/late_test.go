package workertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A broker that confirms slowly gets each copy once; a publisher is told.
func TestACopyWhoseConfirmIsLateIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		other := r.declareQueue()
		var hearing sync.RWMutex
		c := dial(t, b.URL, deafDial(&hearing, publishes), func(c *reprise.Config) { c.ConfirmTimeout = time.Second })
		h := newScript(func(*reprise.Message) error { return reprise.Park(errScripted) })
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil { // its channel stands now
			t.Fatal(err)
		}
		c.log.wait(t, "parked", 1) // what it needs is declared
		r.take(queue + ".failed")

		hearing.Lock()
		for _, id := range []string{"late", "later"} {
			r.publish("", queue, amqp.Publishing{MessageId: id})
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: other}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("publish: %v", err)
		}
		c.log.wait(t, "confirm is late", 2)
		for range 3 { // as many timeouts
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: other}); err == nil {
				t.Error("publish: a confirm was heard")
			}
		}
		hearing.Unlock()
		c.log.wait(t, "parked", 3)
		if n := c.log.count("confirm is late"); n != 2 {
			t.Errorf("%d confirms were late, want those of 2 messages, once each", n)
		}
		if n := c.log.count("copy failed"); n != 0 {
			t.Errorf("copies failed %d times", n)
		}
		if n := r.depth(queue + ".failed"); n != 2 {
			t.Errorf("%d copies are parked, want 2", n)
		}
	})
}
