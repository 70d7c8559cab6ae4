package workertest

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// A broker that confirms late gets each copy once. A publisher gets an error.
func TestACopyWhoseConfirmIsLateIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newMuted()
		c := dial(m.between)
		names := declareQueues(t, c, 1)
		h := newScript(func(*reprise.Message) error { return reprise.Park(errScripted) })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		m.mute(names[0])
		m.mute("work.failed")
		for _, id := range []string{"late", "later"} {
			r.publish("", "work", amqp.Publishing{MessageId: id})
		}
		for range 4 { // for the duration of four timeouts
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: names[0]}); !errors.Is(err, reprise.ErrUnconfirmed) {
				t.Errorf("publish: %v", err)
			}
		}
		c.log.wait(t, "confirm is late", 2)
		m.tell(t)
		c.log.wait(t, "parked", 2)
		if n := c.log.count("confirm is late"); n != 2 {
			t.Errorf("%d confirms were late, want those of 2 messages, once each", n)
		}
		if n := c.log.count("copy failed"); n != 0 {
			t.Errorf("copies failed %d times", n)
		}
		if n := r.depth("work.failed"); n != 2 {
			t.Errorf("%d copies are parked, want 2", n)
		}
	})
}

// A missing confirm does not affect later copies on the same channel. They are confirmed on that channel, and the worker
// does not republish them because of a replaced connection.
func TestAConfirmThatNeverComesLeavesLaterCopiesAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newMuted()
		c := dial(m.between)
		h := newScript(func(*reprise.Message) error { return reprise.Park(errScripted) })
		declareQueues(t, c, 1)
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		m.mute("work.failed")
		for _, id := range []string{"first", "second"} { // the second message uses a channel for late messages
			r.publish("", "work", amqp.Publishing{MessageId: id})
			time.Sleep(time.Minute)
		}
		time.Sleep(38 * time.Minute)
		r.publish("", "work", amqp.Publishing{MessageId: "new"})
		time.Sleep(10 * time.Minute)
		m.tell(t)
		c.log.wait(t, "parked", 3)
		copies := 0
		for _, id := range r.drained("work.failed") {
			if id == "new" {
				copies++
			}
		}
		if copies != 1 {
			t.Errorf("%d copies of the new message are parked, want 1", copies)
		}
	})
}
