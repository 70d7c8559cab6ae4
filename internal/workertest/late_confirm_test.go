package workertest

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// If the broker confirms late, a worker publishes each copy only once, whereas Client.Publish returns ErrUnconfirmed.
func TestLateConfirmDoesNotDuplicateCopy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept)
		names := declareQueues(t, c, 1)
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		m.mute(names[0])
		m.mute("work.failed")
		for _, id := range []string{"late", "later"} {
			r.publish("", "work", amqp.Publishing{MessageId: id})
		}
		for range 4 { // for the duration of four timeouts
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: names[0]}); !errors.Is(err, reprise.ErrUnconfirmed) {
				t.Errorf("Publish: got %v, want ErrUnconfirmed", err)
			}
		}
		c.log.wait(t, "confirm is late", 2)
		m.release(t)
		c.log.wait(t, "parked", 2)
		if n := c.log.count("confirm is late"); n != 2 {
			t.Errorf("got %d late confirms, want one for each of 2 messages", n)
		}
		if n := c.log.count("copy failed"); n != 0 {
			t.Errorf("got %d failed copies, want 0", n)
		}
		if n := r.depth("work.failed"); n != 2 {
			t.Errorf("%d copies were parked, want 2", n)
		}
	})
}

// A missing confirm does not affect later copies on the same channel. The worker waits on that channel for the confirms of
// the later copies. It does not replace the connection, because it would then have to publish these copies again.
func TestMissingConfirmDoesNotAffectLaterCopies(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept)
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		declareQueues(t, c, 1)
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		m.mute("work.failed")
		for _, id := range []string{"first", "second"} { // the second message uses a bulkhead
			r.publish("", "work", amqp.Publishing{MessageId: id})
			time.Sleep(time.Minute)
		}
		time.Sleep(38 * time.Minute)
		r.publish("", "work", amqp.Publishing{MessageId: "new"})
		time.Sleep(10 * time.Minute)
		m.release(t)
		c.log.wait(t, "parked", 3)
		copies := 0
		for _, id := range r.drained("work.failed") {
			if id == "new" {
				copies++
			}
		}
		if copies != 1 {
			t.Errorf("%d copies of the new message were parked, want 1", copies)
		}
	})
}
