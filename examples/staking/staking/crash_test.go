package staking_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/testkit"
)

// If a message terminates the process of its receiver, the broker redelivers the message, and the retry count does not
// change. If the queue counts deliveries, the message is parked before it reaches the delivery limit. At the limit, the
// broker would dead-letter the message to the delay queue, where the message would block other messages.
func TestQueueParksPoisonMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		o.send("poison")
		for range 5 {
			conn, err := amqp.Dial(b.URL)
			must(t, err)
			ch, err := conn.Channel()
			must(t, err)
			deliveries, err := ch.Consume(name, "", false, false, false, false, nil)
			must(t, err)
			<-deliveries
			must(t, conn.Close())
			testkit.Eventually(t, within, func() bool { return o.depth(name) == 1 })
		}
		config := staking.Config{}
		if b.Version == "3.10" { // 3.10 also counts deliveries that did not end with a crash, so there is no default
			config.CrashLimit = 5
		}
		q := open(t, b.URL, name, config)
		o.send("sound")
		m := receive(t, q)
		if string(m.Body) != "sound" {
			t.Errorf("received: got %q, want %q", m.Body, "sound")
		}
		must(t, q.Delete(m.Receipt))
		d := o.take(name + "_failed")
		if string(d.Body) != "poison" || d.Headers["x-reprise-crashes"] != int64(5) || d.Headers["x-processing-attempts"] != int32(1) {
			t.Errorf("parked: got %q with headers %v, want \"poison\" with 5 crashes and 1 attempt", d.Body, d.Headers)
		}
	})
}
