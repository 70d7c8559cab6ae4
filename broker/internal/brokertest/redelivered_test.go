package brokertest

import (
	"context"
	"fmt"
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// If a client has received a message, and the message is in the work queue again after a restart, it is marked as
// redelivered. This applies to each way to settle the message, and to each stage of dead-lettering.
func TestDeliveredMessagesAreRedeliveredAfterShutdown(t *testing.T) {
	const n = 1500
	type settle func(ch *amqp.Channel, ds []amqp.Delivery) error
	each := func(one func(d amqp.Delivery) error) settle {
		return func(_ *amqp.Channel, ds []amqp.Delivery) error {
			for _, d := range ds {
				if err := one(d); err != nil {
					return err
				}
			}
			return nil
		}
	}
	nackAll := func(_ *amqp.Channel, ds []amqp.Delivery) error { return ds[len(ds)-1].Nack(true, false) }
	reject := each(func(d amqp.Delivery) error { return d.Reject(false) })
	dead := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
	with := func(more amqp.Table) amqp.Table {
		all := maps.Clone(dead)
		maps.Copy(all, more)
		return all
	}
	quorum := with(amqp.Table{"x-queue-type": "quorum"})
	atLeastOnce := with(amqp.Table{
		"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
	})
	stranding := maps.Clone(atLeastOnce)
	stranding["x-dead-letter-routing-key"] = "nowhere"
	limited := with(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(0)})

	for _, test := range []struct {
		name   string
		queue  amqp.Table
		tx     bool
		settle settle
	}{
		{"classic, all nacked at once", dead, false, nackAll},
		{"classic, each rejected", dead, false, reject},
		{"classic, rejected in a transaction", dead, true, func(ch *amqp.Channel, ds []amqp.Delivery) error {
			if err := nackAll(ch, ds); err != nil {
				return err
			}
			return ch.TxCommit()
		}},
		{"classic, rejected and not committed", dead, true, nackAll},
		{"classic, some acked", dead, false, each(func(d amqp.Delivery) error {
			if d.DeliveryTag%2 == 0 {
				return d.Ack(false)
			}
			return d.Nack(false, false)
		})},
		{"classic, not settled", dead, false, func(*amqp.Channel, []amqp.Delivery) error { return nil }},
		{"quorum, all nacked at once", quorum, false, nackAll},
		{"quorum, each rejected", quorum, false, reject},
		{"quorum, at the delivery limit", limited, false, each(func(d amqp.Delivery) error { return d.Reject(true) })},
		{"at-least-once, all nacked at once", atLeastOnce, false, nackAll},
		{"at-least-once, each rejected", atLeastOnce, false, reject},
		{"at-least-once, without a target queue", stranding, false, nackAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := inData(t)
			runBroker(t, config, func(b *broker.Broker) {
				ch := channel(t, dial(t, b))
				must(t, declare(ch, "work", test.queue))
				must(t, declare(ch, "dead", nil))
				publishMany(t, ch, "work", n)
				if test.tx {
					ch = channel(t, dial(t, b))
					must(t, ch.Tx())
				}
				must(t, ch.Qos(0, 0, false))
				deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
				must(t, err)
				var all []amqp.Delivery
				for len(all) < n {
					d, ok := <-deliveries
					if !ok {
						t.Fatal("channel closed")
					}
					all = append(all, d)
				}
				must(t, test.settle(ch, all))
			})
			runBroker(t, config, func(b *broker.Broker) {
				ch := channel(t, dial(t, b))
				asNew, left := 0, ready(b, "work")
				for range left {
					d, ok, err := ch.Get("work", true)
					must(t, err)
					if !ok {
						t.Fatal("queue has fewer messages than its counter")
					}
					if !d.Redelivered {
						asNew++
					}
				}
				if asNew > 0 {
					t.Errorf("%d of %d messages in the work queue are not marked as redelivered", asNew, left)
				}
				if both := left + ready(b, "dead"); both != n && test.name != "classic, some acked" {
					t.Errorf("messages in both queues: got %d, want %d", both, n)
				}
			})
		})
	}
}

// publishMany publishes persistent messages, and waits for all confirms.
func publishMany(t *testing.T, ch *amqp.Channel, queue string, n int) {
	t.Helper()
	must(t, ch.Confirm(false))
	var last *amqp.DeferredConfirmation
	for i := range n {
		var err error
		last, err = ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(i),
		})
		must(t, err)
	}
	if !last.Wait() {
		t.Fatal("broker nacked a message")
	}
}
