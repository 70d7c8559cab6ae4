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

// If one of two target queues refuses a dead letter, the broker sends the letter only to that queue again.
func TestAtLeastOnceDeadLetterReachesEachTargetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, ch.ExchangeDeclare("dead", "fanout", true, false, false, false, nil))
		for _, queue := range []string{"full", "free"} {
			must(t, declare(ch, queue, amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"}))
			must(t, ch.QueueBind(queue, "", "dead", false, nil))
		}
		for range 3 {
			must(t, ch.Publish("", "full", true, false, amqp.Publishing{}))
		}
		must(t, declare(ch, "wait", amqp.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "dead", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		}))
		for range 2 {
			must(t, ch.Publish("", "wait", true, false, amqp.Publishing{Expiration: "1000"}))
		}
		expect := func(when string, want map[string]int) {
			for _, q := range b.Queues() {
				if n, listed := want[q.Name]; listed && n != q.Ready {
					t.Errorf("%s: queue %s: got %d messages, want %d", when, q.Name, q.Ready, n)
				}
			}
		}
		time.Sleep(time.Minute)
		expect("one queue is full", map[string]int{"full": 3, "free": 2})
		_, err := ch.QueuePurge("full", false)
		must(t, err)
		time.Sleep(time.Minute)
		expect("after the purge", map[string]int{"full": 2, "free": 2})
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

// The broker drops a message that would circulate endlessly between queues without a rejection.
func TestEndlessCycleIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		for queue, next := range map[string]string{"a": "b", "b": "a"} {
			must(t, declare(ch, queue, amqp.Table{"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": next}))
		}
		must(t, ch.Publish("", "a", true, false, amqp.Publishing{}))
		time.Sleep(time.Minute + 500*time.Millisecond) // between two deaths
		for _, q := range b.Queues() {
			if q.Ready > 0 {
				t.Errorf("after a minute, queue %s still has the message", q.Name)
			}
		}
	})
}
