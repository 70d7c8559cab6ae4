package workertest

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// The worker with the highest priority receives all messages while it has capacity.
func TestConsumerPriority(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages = 10
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		begin := func(priority int32) (*script, func() error) {
			h := newScript(func(*reprise.Delivery) error { return nil })
			return h, start(t, c, reprise.WorkerConfig{Queue: queue, Strategy: strategy, Handler: h, Priority: priority})
		}
		high, stop := begin(1)
		r.publish("", queue, amqp.Publishing{MessageId: "first"}) // with RabbitMQ 3.10, a worker has the capacity for one message until then
		high.wait(t, 1)
		low, _ := begin(-1)
		none, _ := begin(0)
		another, _ := begin(0)
		publish := func() {
			for i := range messages {
				r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(i)})
			}
		}
		publish()
		high.wait(t, 1+messages)
		if err := stop(); err != nil {
			t.Error(err)
		}
		publish()
		testkit.Eventually(t, timeout, func() bool { return none.count()+another.count() == messages })
		if n := low.count() + high.count(); n != 1+messages {
			t.Errorf("workers with the highest and lowest priority got %d messages, want %d", n, 1+messages)
		}
	})
}
