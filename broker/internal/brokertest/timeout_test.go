package brokertest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// If a consumer of a quorum queue does not settle a message within half an hour, the broker cancels the consumer and
// requeues its messages. Classic queues do not have this timeout.
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
			t.Errorf("broker cancelled consumer %s, want quorum", tag)
		}
		if waited := time.Since(began); waited != 30*time.Minute {
			t.Errorf("consumer cancelled after %v, want 30m", waited)
		}
		must(t, ch.Ack(1, false)) // the ack is too late, but not an error
		again, ok, err := channel(t, conn).Get("quorum", true)
		must(t, err)
		if !ok || !again.Redelivered {
			t.Errorf("redelivery: got %v, redelivered %v, want a redelivered message", ok, again.Redelivered)
		}
		if _, ok, err := ch.Get("classic", true); ok || err != nil {
			t.Errorf("classic queue requeued its message (%v)", err)
		}
	})
}

// A queue argument or a consumer argument can set the acknowledgement timeout.
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
			t.Errorf("cancelled consumer: got %s after %v, want own after 30s", tag, time.Since(began))
		}
		if tag := <-cancelled; tag != "queue's" || time.Since(began) != time.Minute {
			t.Errorf("cancelled consumer: got %s after %v, want queue's after 1m", tag, time.Since(began))
		}
	})
}

// After the timeout, the broker frees the memory of a delivered message, even if the client never settles the delivery.
func TestTimedOutDeliveryFreesMessage(t *testing.T) {
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
					t.Fatal("message was not requeued")
				}
				must(t, d.Ack(false))
			}
		}
		synctest.Wait()
		if grown := heap() - before; grown > rounds*messages*size/4 {
			t.Errorf("heap growth for deliveries that timed out: got %d KiB, want at most %d", grown>>10, rounds*messages*size/4>>10)
		}
		must(t, ch.Ack(rounds*messages, true)) // the ack is too late, but not an error
		must(t, ch.Close())
	})
}
