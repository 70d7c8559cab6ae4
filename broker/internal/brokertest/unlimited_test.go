package brokertest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// A consumer without a prefetch that falls behind gets a bounded number of messages, and the others as it acknowledges.
func TestAConsumerWithoutAPrefetchIsNotCutOff(t *testing.T) {
	const most, more = 1 << 18, 3000
	_, conn := start(t, broker.Config{})
	ch := channel(t, conn)
	must(t, declare(ch, "backlog", nil))
	for range most + more {
		must(t, ch.Publish("", "backlog", false, false, amqp.Publishing{}))
	}
	deliveries, err := ch.Consume("backlog", "", false, false, false, false, nil)
	must(t, err)
	next := func() amqp.Delivery {
		t.Helper()
		select {
		case d, ok := <-deliveries:
			if !ok {
				t.Fatal("the connection was closed")
			}
			return d
		case <-time.After(2 * time.Minute):
			t.Fatal("no message comes")
		}
		panic("unreachable")
	}
	for n := uint64(1); n <= most; n++ {
		if d := next(); d.DeliveryTag != n {
			t.Fatalf("delivery %d has the tag %d", n, d.DeliveryTag)
		}
	}
	q, err := channel(t, conn).QueueDeclarePassive("backlog", true, false, false, false, nil)
	if err != nil || q.Messages != more {
		t.Errorf("%d messages are left, want %d: %v", q.Messages, more, err)
	}
	must(t, ch.Ack(more, true))
	for n := uint64(most + 1); n <= most+more; n++ {
		if d := next(); d.DeliveryTag != n {
			t.Fatalf("delivery %d has the tag %d", n, d.DeliveryTag)
		}
	}
	must(t, ch.Ack(0, true))
}
