package brokertest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// The broker cancels a consumer that does not settle a message for half an hour, and delivers its messages to others. Classic
// queues have no timeout.
func TestConsumerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "quorum", amqp.Table{"x-queue-type": "quorum"}))
		must(t, declare(ch, "classic", nil))
		cancelled := ch.NotifyCancel(make(chan string, 2))
		for _, q := range []string{"quorum", "classic"} {
			deliveries, err := ch.Consume(q, q, false, false, false, false, nil)
			must(t, err)
			must(t, ch.Publish("", q, true, false, amqp.Publishing{}))
			<-deliveries
		}
		began := time.Now()
		if tag := <-cancelled; tag != "quorum" {
			t.Errorf("%s was cancelled", tag)
		}
		if waited := time.Since(began); waited != 30*time.Minute {
			t.Errorf("cancelled after %v", waited)
		}
		must(t, ch.Ack(1, false)) // too late, and no mistake
		again, ok, err := channel(t, conn).Get("quorum", true)
		must(t, err)
		if !ok || !again.Redelivered {
			t.Errorf("the message is not there again: %v %v", ok, again.Redelivered)
		}
		if _, ok, err := ch.Get("classic", true); ok || err != nil {
			t.Errorf("the classic queue gave its message back (%v)", err)
		}
	})
}

// The queue or the consumer can set the timeout.
func TestConsumerTimeoutArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "q", amqp.Table{"x-queue-type": "quorum", "x-consumer-timeout": 60000}))
		cancelled := ch.NotifyCancel(make(chan string, 2))
		for tag, args := range map[string]amqp.Table{"queue's": nil, "own": {"x-consumer-timeout": 30000}} {
			must(t, ch.Qos(1, 0, false))
			deliveries, err := ch.Consume("q", tag, false, false, false, false, args)
			must(t, err)
			must(t, ch.Publish("", "q", true, false, amqp.Publishing{}))
			<-deliveries
		}
		began := time.Now()
		if tag := <-cancelled; tag != "own" || time.Since(began) != 30*time.Second {
			t.Errorf("%s cancelled after %v", tag, time.Since(began))
		}
		if tag := <-cancelled; tag != "queue's" || time.Since(began) != time.Minute {
			t.Errorf("%s cancelled after %v", tag, time.Since(began))
		}
	})
}

// The broker does not keep messages for a consumer after its timeout, even if its client never settles them.
func TestTimedOutDeliveriesKeepNoMessages(t *testing.T) {
	const rounds, messages, size = 4, 8, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch, other := channel(t, conn), channel(t, conn)
		must(t, declare(ch, "q", amqp.Table{"x-queue-type": "quorum"}))
		cancelled := ch.NotifyCancel(make(chan string, 1))
		body := make([]byte, size)
		before := heap()
		for round := range rounds {
			deliveries, err := ch.Consume("q", fmt.Sprint(round), false, false, false, false, nil)
			must(t, err)
			for range messages {
				must(t, other.Publish("", "q", true, false, amqp.Publishing{Body: body}))
				<-deliveries
			}
			<-cancelled
			for range messages {
				d, ok, err := other.Get("q", false)
				must(t, err)
				if !ok || !d.Redelivered {
					t.Fatal("a message has not come back")
				}
				must(t, d.Ack(false))
			}
		}
		synctest.Wait()
		if grown := heap() - before; grown > rounds*messages*size/4 {
			t.Errorf("%d KiB are kept for deliveries that timed out", grown>>10)
		}
		must(t, ch.Ack(rounds*messages, true)) // too late, and no mistake
		must(t, ch.Close())
	})
}
