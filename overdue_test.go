package reprise_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// A handler that takes long does not cost the channel for the sake of messages
// that wait behind it: they are given back in time, and handled later. Of the
// handler itself the log warns.
func TestWhatWaitsTooLongIsGivenBackBeforeTheBrokerLosesPatience(t *testing.T) {
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Message) error { return nil })
		slow := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
			if m.MessageID == "0" {
				time.Sleep(29 * time.Minute) // the broker's patience is 30
			} else {
				time.Sleep(4 * time.Minute)
			}
			return h.Handle(ctx, m)
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: slow})
		for i := range 10 {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		time.Sleep(2 * time.Hour)
		seen := map[string]int{}
		for _, m := range h.wait(t, 10) {
			seen[m.MessageID]++
		}
		if len(seen) != 10 || h.count() != 10 {
			t.Errorf("handled %d times, %v", h.count(), seen)
		}
		if n := c.log.count("consuming interrupted"); n != 0 {
			t.Errorf("the channel was lost %d times", n)
		}
		if n := c.log.count("consumer timeout is near"); n == 0 {
			t.Error("nobody was warned")
		}
		if n := c.log.count("waited too long to begin"); n == 0 {
			t.Error("nothing was given back")
		}
	})
}

// Where the broker has no such limit, nothing of the kind happens.
func TestNoConsumerTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Message) error {
			time.Sleep(9 * time.Minute)
			return nil
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, ConsumerTimeout: -1})
		for range 3 {
			r.publish("", "work", amqp.Publishing{})
		}
		time.Sleep(28 * time.Minute)
		h.wait(t, 3)
		if n := c.log.count("consumer timeout is near") + c.log.count("waited too long to begin"); n != 0 {
			t.Errorf("warned %d times", n)
		}
	})
}
