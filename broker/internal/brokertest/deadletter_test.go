package brokertest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// A rejected message waits for four hours in a wait queue and then returns to the work queue.
func TestMessageReturnsFromWaitQueueAfterFourHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}))
		must(t, declare(ch, "wait", amqp.Table{
			"x-message-ttl": 14400000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
		}))
		deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
		must(t, err)
		must(t, ch.Publish("", "work", true, false, amqp.Publishing{Body: []byte("release"), MessageId: "1"}))

		began := time.Now()
		first := <-deliveries
		must(t, first.Reject(false))
		again := <-deliveries
		if waited := time.Since(began); waited != 4*time.Hour {
			t.Errorf("retry after %v, want exactly 4 h", waited)
		}
		if again.MessageId != "1" || string(again.Body) != "release" {
			t.Errorf("unexpected message: id %q, body %q", again.MessageId, again.Body)
		}
		deaths := again.Headers["x-death"].([]any)
		if len(deaths) != 2 || deaths[0].(amqp.Table)["reason"] != "expired" || deaths[1].(amqp.Table)["reason"] != "rejected" {
			t.Errorf("unexpected x-death: %v", deaths)
		}
		must(t, again.Ack(false))
	})
}

// A wait queue with at-least-once dead-lettering keeps its messages while the target queue does not exist.
func TestAtLeastOnceDeadLetterWaitsForTargetQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "wait", amqp.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		}))
		for i := range 3 {
			must(t, ch.Publish("", "wait", true, false, amqp.Publishing{Body: fmt.Append(nil, i), Expiration: "1000"}))
		}
		time.Sleep(time.Hour)
		must(t, declare(ch, "work", nil))
		deliveries, err := ch.Consume("work", "", true, false, false, false, nil)
		must(t, err)
		for i := range 3 {
			if d := <-deliveries; string(d.Body) != fmt.Sprint(i) {
				t.Errorf("body of message %d: got %q, want \"%d\"", i, d.Body, i)
			}
		}
	})
}

// With at-most-once dead-lettering, the broker drops dead letters whose target queue does not exist, as RabbitMQ does.
func TestAtMostOnceDeadLetterIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "wait", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}))
		must(t, ch.Publish("", "wait", true, false, amqp.Publishing{Expiration: "1000"}))
		time.Sleep(time.Minute)
		must(t, declare(ch, "work", nil))
		time.Sleep(time.Hour)
		for _, q := range b.Queues() {
			if q.Ready+q.Unacked > 0 {
				t.Errorf("queue %s still has a message", q.Name)
			}
		}
	})
}
