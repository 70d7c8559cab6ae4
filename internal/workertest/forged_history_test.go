package workertest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// The broker counts deliveries in headers that publishers can also write. A publisher may be a program that copies all
// headers of another message, or a malicious program.

// counting returns the routes for which the broker counts the attempts, and the wait queues of these routes.
func counting(queue string) map[string]struct {
	route topology.Route
	waits []string
} {
	return map[string]struct {
		route topology.Route
		waits []string
	}{
		"requeuing":     {topology.Requeuing{}, nil},
		"deadlettering": {topology.DeadLettering{Delay: 20 * time.Millisecond}, []string{queue + ".retry"}},
	}
}

// A message whose headers claim many rejections in another queue gets the usual number of attempts.
func TestForgedHistoryDoesNotIncreaseAttempts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		queue := testkit.Name(t, "work")
		for name, way := range counting(queue) {
			t.Run(name, func(t *testing.T) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				r.deleteQueues(append(way.waits, queue, queue+".failed")...)
				h := newScript(func(*reprise.Delivery) error { return errScripted })
				stop := start(t, c, reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: topology.Strategy{Route: way.route}, Policy: quick(3),
				})
				r.publish("", queue, amqp.Publishing{Headers: amqp.Table{
					"x-death": []any{amqp.Table{
						"reason": "rejected", "queue": "other", "count": int64(1 << 40), "exchange": "", "routing-keys": []any{"other"},
					}},
				}})
				r.take(queue + ".failed")
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := h.count(); n != 3 {
					t.Errorf("got %d attempts, want 3", n)
				}
			})
		}
	})
}

// With a forged history, the worker still counts each lost connection as a crash.
func TestForgedHistoryDoesNotHideCrashes(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		work := testkit.Name(t, "work")
		r.declare(c, topology.DeadLettering{}.Topology(work))
		r.publish("", work, amqp.Publishing{Headers: amqp.Table{
			"x-death": []any{amqp.Table{"reason": "rejected", "queue": "other", "count": int64(1 << 40)}},
		}})
		for crashes := range 4 {
			raw := r.get(work)
			if n := crashCount(topology.Deaths{}, delivered(work, raw)); n != crashes {
				t.Errorf("crashes: got %[2]d, want %[1]d, from headers %[3]v", crashes, n, raw.Headers)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r.reopen()
		}
	})
}

// If a message was rejected in another queue, the worker retries it at most as often as the policy permits.
func TestRejectionsInOtherQueuesDoNotIncreaseAttempts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		queue, before := testkit.Name(t, "work"), testkit.Name(t, "before")
		r.declare(c, topology.Topology{Queues: []topology.Queue{{Name: before, Args: topology.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
		}}}})
		r.deleteQueues(queue, queue+".failed")
		h := newScript(func(*reprise.Delivery) error { return errScripted })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: topology.Strategy{Route: topology.Requeuing{}}, Policy: quick(3),
		})
		r.publish("", before, amqp.Publishing{})
		if err := r.get(before).Reject(false); err != nil {
			t.Fatal(err)
		}
		r.take(queue + ".failed")
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := h.count(); n < 2 || n > 3 { // RabbitMQ 4.3 also counts the rejection in the other queue
			t.Errorf("got %d attempts, want 2 or 3", n)
		}
	})
}

// If a message was moved from another queue with all headers, including the count of that queue, the worker handles it, and
// permits the usual number of attempts.
func TestWorkerIgnoresCountsOfOtherQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		queue := testkit.Name(t, "work")
		ways := counting(queue)
		copying := ways["requeuing"]
		copying.route, copying.waits = topology.Buckets{Base: 20 * time.Millisecond}, []string{queue + ".wait.0-20"}
		ways["buckets"] = copying
		for name, way := range ways {
			t.Run(name, func(t *testing.T) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				r.deleteQueues(append(way.waits, queue, queue+".failed")...)
				h := newScript(func(*reprise.Delivery) error { return errScripted })
				stop := start(t, c, reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: topology.Strategy{Route: way.route}, Policy: quick(3), CrashLimit: 5,
				})
				r.publish("", queue, amqp.Publishing{Headers: amqp.Table{"x-delivery-count": int64(6)}})
				r.take(queue + ".failed")
				if err := stop(); err != nil {
					t.Error(err)
				}
				for i, m := range h.wait(t, 3) {
					if m.Attempt != i+1 {
						t.Errorf("attempt in run %[1]d: got %[2]d, want %[1]d", i+1, m.Attempt)
					}
				}
				if n := h.count(); n != 3 {
					t.Errorf("got %d attempts, want 3", n)
				}
			})
		}
	})
}

// A worker also retries messages that were published directly to its work queue, and not through the work exchange.
func TestWorkerRetriesDirectlyPublishedMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for kind, own := range map[string]string{topology.Direct: "order.new", topology.Topic: "order.*", topology.Fanout: ""} {
			t.Run(kind, func(t *testing.T) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				work, orders := testkit.Name(t, "work"), testkit.Name(t, "orders")
				infrastructure := topology.Topology{
					Exchanges: []topology.Exchange{
						{Name: orders, Kind: kind}, {Name: orders + ".wait", Kind: topology.Fanout}, {Name: orders + ".failed", Kind: topology.Fanout},
					},
					Queues: []topology.Queue{
						{Name: work},
						{Name: orders + ".wait", Args: topology.Table{"x-dead-letter-exchange": orders, "x-message-ttl": 20}},
						{Name: orders + ".failed"},
					},
					Bindings: []topology.Binding{
						{Exchange: orders, Queue: work, RoutingKey: own},
						{Exchange: orders + ".wait", Queue: orders + ".wait"},
						{Exchange: orders + ".failed", Queue: orders + ".failed"},
					},
				}
				r.declare(c, infrastructure)
				h := newScript(func(*reprise.Delivery) error { return errScripted })
				start(t, c, reprise.WorkerConfig{
					Queue: work, Handler: h, Policy: quick(3),
					Strategy: topology.Strategy{Route: topology.WaitQueue{
						WorkExchange: orders, WaitExchange: orders + ".wait", FailedExchange: orders + ".failed",
						Delay: 20 * time.Millisecond, Infrastructure: infrastructure,
					}},
				})
				r.publish("", work, amqp.Publishing{MessageId: "by name"})
				r.publish(orders, "order.new", amqp.Publishing{MessageId: "by key"})
				parked := map[string]bool{r.take(orders + ".failed").MessageId: true}
				parked[r.take(orders+".failed").MessageId] = true
				if n := h.count(); n != 6 || len(parked) != 2 {
					t.Errorf("got %d attempts, want 6; parked: %v", n, parked)
				}
			})
		}
	})
}
