package workertest

import (
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// failingBreaker is a Breaker that requests a probe and then panics. The panic pauses the worker.
type failingBreaker struct{ asked atomic.Int32 }

func (*failingBreaker) Allow() (func(error), time.Duration) { return func(error) {}, 0 }

func (f *failingBreaker) Probing() bool {
	if f.asked.Add(1) > 1 {
		panic("probing")
	}
	return true
}

// If a worker stops during a pause, the waiting message has neither a redelivery nor an attempt.
func TestWorkerReceivesNoDeliveriesDuringPause(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		h := newScript(func(*reprise.Delivery) error { return nil })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: "work", Handler: h, Breaker: &failingBreaker{},
			Topology: topology.Topology{Queues: []topology.Queue{{Name: "work", Args: topology.Table{"x-queue-type": "quorum"}}}},
		})
		r.publish("", "work", amqp.Publishing{MessageId: "id"})
		c.log.wait(t, "paused", 1)
		if err := stop(); err != nil {
			t.Error(err)
		}
		d := r.take("work")
		if n, _ := amqpvalue.Integer(d.Headers["x-delivery-count"]); n > 0 || h.count() > 0 {
			t.Errorf("got %d redeliveries and %d attempts, want 0 and 0; headers: %v", n, h.count(), d.Headers)
		}
	})
}
