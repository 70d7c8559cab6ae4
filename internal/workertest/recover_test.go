package workertest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If another client deletes queues and exchanges through which the worker publishes copies, the worker recovers.
func TestWorkerRepublishesCopiesAfterDeletedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{Base: 50 * time.Millisecond})
		h := newScript(func(m *reprise.Delivery) error {
			if m.Type == "park" || m.Attempt == 2 {
				return reprise.Park(errScripted)
			}
			return errScripted
		})
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(3)})
		wait := queue + ".wait.0-50"
		check := func(step string, failures int) {
			t.Helper()
			before := c.log.count("copy failed")
			typ := "retry"
			if step == "failed queue deleted" {
				typ = "park"
			}
			parked := c.log.count("parked")
			r.publish("", queue, amqp.Publishing{MessageId: step, Type: typ})
			// While a quorum queue is being declared, basic.get closes the connection (541). Therefore the test does not
			// read the queue before the worker has used it.
			c.log.wait(t, "parked", parked+1)
			if d := r.take(queue + ".failed"); d.MessageId != step {
				t.Errorf("parked message: got %q, want %q", d.MessageId, step)
			}
			if n := c.log.count("copy failed") - before; n != failures {
				t.Errorf("%s: got %d failed copies, want %d", step, n, failures)
			}
		}
		check("nothing deleted", 0)
		must := func(_ int, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(r.QueueDelete(queue+".failed", false, false, false))
		check("failed queue deleted", 1) // the default exchange returns the message
		must(r.QueueDelete(wait, false, false, false))
		check("wait queue deleted", 1)
		if n := r.depth(queue); n != 0 {
			t.Errorf("queue has %d messages, want 0", n)
		}
	})
}

func TestWorkerRepublishesNackedCopies(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, names := testkit.Name(t, "work"), testkit.Name(t, "x")
		r.deleteQueues(queue, names+".failed")
		r.deleteExchanges(names, names+".wait", names+".failed")
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{
			Queue: queue, Handler: h,
			Strategy: topology.Strategy{Route: topology.WaitQueue{
				WorkExchange: names, WaitExchange: names + ".wait", FailedExchange: names + ".failed",
				Infrastructure: topology.Topology{
					Exchanges: []topology.Exchange{
						{Name: names, Kind: topology.Direct}, {Name: names + ".wait", Kind: topology.Fanout}, {Name: names + ".failed", Kind: topology.Fanout},
					},
					Queues: []topology.Queue{
						{Name: queue},
						{Name: names + ".failed", Args: topology.Table{"x-max-length": 1, "x-overflow": "reject-publish"}},
					},
					Bindings: []topology.Binding{{Exchange: names, Queue: queue}, {Exchange: names + ".failed", Queue: names + ".failed"}},
				},
			}},
		})
		r.publish("", queue, amqp.Publishing{MessageId: "1"})
		c.log.wait(t, "parked", 1)
		r.publish("", queue, amqp.Publishing{MessageId: "2"})
		c.log.wait(t, "copy failed", 2)
		for _, id := range []string{"1", "2"} {
			if d := r.take(names + ".failed"); d.MessageId != id {
				t.Errorf("parked message: got %q, want %q", d.MessageId, id)
			}
		}
		if n := h.count(); n != 2 {
			t.Errorf("runs of the handler: got %d, want 2", n)
		}
	})
}

func TestWorkerConsumesAgainAfterDeletedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(*reprise.Delivery) error { return nil })
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		if _, err := r.QueueDelete(queue, false, false, false); err != nil {
			t.Fatal(err)
		}
		c.log.wait(t, "consumer cancelled", 1)
		c.log.wait(t, "consuming", 2)
		r.publish("", queue, amqp.Publishing{})
		h.wait(t, 1)
	})
}

// A message that was delivered before its queue was deleted can still be parked.
func TestWorkerParksMessageOfDeletedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		// RabbitMQ 4.3 cancels consumers shortly before it deletes the queue. A subscription in this interval would close
		// the channel, so the worker reconnects later.
		patient := func(c *reprise.Config) { c.Reconnect = backoff.Fixed(300 * time.Millisecond) }
		c := dial(t, b.URL, patient)
		h := newHeldHandler(t)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{MessageId: "id"})
		running := h.next()
		if _, err := r.QueueDelete(queue, false, false, false); err != nil {
			t.Fatal(err)
		}
		c.log.wait(t, "consuming", 2)
		running.result <- reprise.Park(errScripted)
		if d := r.take(queue + ".failed"); d.MessageId != "id" {
			t.Errorf("parked message: got %q, want id", d.MessageId)
		}
	})
}
