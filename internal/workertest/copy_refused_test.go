package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// permit sets the permissions of the user of a URL.
func permit(t *testing.T, api, url, configure, write string) {
	t.Helper()
	body := fmt.Sprintf(`{"configure":%q,"write":%q,"read":".*"}`, configure, write)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, api+"/api/permissions/%2F/"+mustUser(t, url), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.SetBasicAuth("guest", "guest")
	response, err := testkit.HTTPClient(t).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode/100 != 2 {
		t.Fatalf("status of the response: got %s, want 2xx", response.Status)
	}
}

// failsAtOnce is more than the default prefetch, so that the messages would stall a worker that holds them.
const failsAtOnce = 20

// Whatever the broker refuses permanently, each failed message is parked at once, and messages behind it are handled.
func TestRefusedCopyIsParked(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		for name, refuse := range map[string]func(t *testing.T, r *raw, url, queue string){
			"no permission to declare the wait queue": func(t *testing.T, _ *raw, url, queue string) {
				permit(t, api, url, "^"+queue+`(\.failed)?$`, ".*")
			},
			"no permission to declare any queue": func(t *testing.T, _ *raw, url, _ string) { permit(t, api, url, "^$", ".*") },
			"no permission to write": func(t *testing.T, _ *raw, url, queue string) {
				permit(t, api, url, ".*", "^$")
			},
			"wait queue with other arguments": func(t *testing.T, r *raw, _, queue string) {
				hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: queue}, 3*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.QueueDeclare(hop.RoutingKey, true, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
				r.deleteQueues(hop.RoutingKey)
			},
		} {
			orders := []reprise.Order{reprise.PublishThenAck, reprise.AckThenPublish}
			if name == "no permission to write" {
				orders = orders[:1] // with AckThenPublish, the message can no longer be rejected
			}
			for _, order := range orders {
				t.Run(fmt.Sprint(name, "/order ", order), func(t *testing.T) {
					t.Parallel()
					r := newRaw(t, b.URL)
					queue, strategy := r.names(topology.Buckets{})
					url := otherUser(t, b.URL, api)
					h := newScript(func(m *reprise.Delivery) error {
						if m.MessageID == "good" {
							return nil
						}
						return reprise.RetryAfter(3*time.Second, errScripted)
					})
					events := &events{}
					c := dial(t, url, func(c *reprise.Config) { c.Observer = events })
					start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Order: order})
					refuse(t, r, url, queue)
					for n := range failsAtOnce {
						r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(n)})
					}
					r.publish("", queue, amqp.Publishing{MessageId: "good"})
					h.wait(t, failsAtOnce+1)
					testkit.Eventually(t, timeout, func() error {
						if n := r.depth(queue + ".failed"); n != failsAtOnce {
							return fmt.Errorf("%d messages are parked, want %d", n, failsAtOnce)
						}
						return nil
					})
					if n := h.count(); n != failsAtOnce+1 {
						t.Errorf("handler was called %d times, want %d", n, failsAtOnce+1)
					}
					if len(events.of(reprise.EventCopyRefused)) == 0 || c.log.count("copy refused") == 0 {
						t.Error("neither the log nor the observer reports the refusal")
					}
				})
			}
		}
	})
}

// rejects is a route that retries by copies and parks by rejection.
type rejects struct{ topology.Buckets }

func (rejects) Failed(topology.Delivery) topology.Hop { return topology.Hop{Way: topology.DeadLetter} }

// If the route parks without a copy, a message whose copy for the wait queue is refused is parked in that way.
func TestRefusedCopyIsParkedByRejectingRoute(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: queue}, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.QueueDeclare(hop.RoutingKey, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		r.deleteQueues(hop.RoutingKey)
		strategy.Route = rejects{}
		h := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(3*time.Second, errScripted) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Topology: topology.Buckets{}.Failed(topology.Delivery{Queue: queue}).Topology})
		r.publish("", queue, amqp.Publishing{MessageId: "order-1"})
		if d := r.take(queue + ".failed"); d.MessageId != "order-1" {
			t.Errorf("parked message: got ID %q, want order-1", d.MessageId)
		}
	})
}

// splitBroker makes the publishing connections of a client use another broker, which refuses what the first accepts.
func splitBroker(other string) func(*reprise.Config) {
	return func(c *reprise.Config) {
		var dials atomic.Int32
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == publishes {
				addr = other
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
}

// A message that is larger than the broker's limit, for example after an upgrade, is parked without a copy.
func TestTooLargeMessageIsParkedWithoutCopy(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, outcome := range map[string]error{"retry": errScripted, "park": reprise.Park(errScripted)} {
			t.Run(name, func(t *testing.T) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{})
				small, _ := testkit.EmbeddedManaged(t, broker.Config{MaxMessageSize: 100_000})
				h := newScript(func(m *reprise.Delivery) error {
					if m.MessageID == "good" {
						return nil
					}
					return outcome
				})
				c := dial(t, b.URL, splitBroker(strings.TrimSuffix(small.URL[strings.Index(small.URL, "@")+1:], "/")))
				start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
				body := make([]byte, 200_000)
				for n := range failsAtOnce {
					r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(n), Body: body})
				}
				r.publish("", queue, amqp.Publishing{MessageId: "good"})
				h.wait(t, failsAtOnce+1)
				testkit.Eventually(t, timeout, func() error {
					if n := r.depth(queue + ".failed"); n != failsAtOnce {
						return fmt.Errorf("%d messages are parked, want %d", n, failsAtOnce)
					}
					return nil
				})
				if parked := r.take(queue + ".failed"); len(parked.Body) != len(body) {
					t.Errorf("parked message: got a body of %d bytes, want %d", len(parked.Body), len(body))
				}
				if n := h.count(); n != failsAtOnce+1 {
					t.Errorf("handler was called %d times, want %d", n, failsAtOnce+1)
				}
			})
		}
	})
}

// A message that can be neither copied nor rejected stays in its queue. The worker holds it, reports this, and handles the
// messages behind it.
func TestWorkerHoldsMessageThatItCannotPark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		if _, err := r.QueueDeclare(queue, true, false, false, false, nil); err != nil { // without a dead-letter exchange
			t.Fatal(err)
		}
		small, _ := testkit.EmbeddedManaged(t, broker.Config{MaxMessageSize: 100_000})
		c := dial(t, b.URL, splitBroker(strings.TrimSuffix(small.URL[strings.Index(small.URL, "@")+1:], "/")))
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "good" {
				return nil
			}
			return errScripted
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		for n := range failsAtOnce {
			r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(n), Body: make([]byte, 200_000)})
		}
		r.publish("", queue, amqp.Publishing{MessageId: "good"})
		h.wait(t, failsAtOnce+1)
		testkit.Eventually(t, timeout, func() error {
			if err := w.Status().Err; !errors.Is(err, reprise.ErrCopyRefused) {
				return fmt.Errorf("Consuming: got %v, want ErrCopyRefused", err)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := w.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, timeout, func() error {
			if n := r.depth(queue); n != failsAtOnce {
				return fmt.Errorf("%d messages are in the queue, want %d", n, failsAtOnce)
			}
			return nil
		})
	})
}

// If the connection of a held message is lost, the worker does not handle the redelivered message again.
func TestHeldMessageIsNotHandledAgain(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		if _, err := r.QueueDeclare(queue, true, false, false, false, nil); err != nil { // without a dead-letter exchange
			t.Fatal(err)
		}
		small, _ := testkit.EmbeddedManaged(t, broker.Config{MaxMessageSize: 100_000})
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL(), splitBroker(strings.TrimSuffix(small.URL[strings.Index(small.URL, "@")+1:], "/")))
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "good" {
				return nil
			}
			return errScripted
		})
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Concurrency: 1})
		r.publish("", queue, amqp.Publishing{MessageId: "held", Body: make([]byte, 200_000)})
		c.log.wait(t, "copy failed", 1)
		sessions := c.log.count("consuming")
		proxy.Cut()
		c.log.wait(t, "consuming", sessions+1)
		r.publish("", queue, amqp.Publishing{MessageId: "good"})
		if all := h.wait(t, 2); all[0].MessageID != "held" || all[1].MessageID != "good" {
			t.Errorf("the handler got messages %s and %s, want held and good", all[0].MessageID, all[1].MessageID)
		}
	})
}

// A message whose headers leave no space for a copy, in a queue that does not dead-letter, does not block other messages. The
// worker reports it, and requeues it at the latest during the drain.
func TestWorkerReportsMessageThatCannotBeParked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		h := newScript(func(m *reprise.Delivery) error {
			if m.Headers["large"] != nil {
				return errors.New("bad")
			}
			return nil
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: strategy, Concurrency: 1, Prefetch: 1,
			Topology: topology.Topology{Queues: []topology.Queue{{Name: queue}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		r.publish("", queue, amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("x", 131_020)}})
		testkit.Eventually(t, timeout, func() bool { return errors.Is(w.Status().Err, reprise.ErrCopyRefused) })
		r.publish("", queue, amqp.Publishing{MessageId: "next"})
		h.wait(t, 2)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 1 })
		if err := w.Status().Err; errors.Is(err, reprise.ErrCopyRefused) {
			t.Errorf("after the drain: got %v", err)
		}
	})
}

// later is a route that publishes copies to an exchange whose binding another program declares.
type later struct{ topology.Buckets }

func (r later) Wait(d topology.Delivery, delay time.Duration) (topology.Hop, error) {
	hop, err := r.Buckets.Wait(d, delay)
	hop.Exchange = "later"
	hop.Topology = topology.Topology{Exchanges: []topology.Exchange{{Name: "later", Kind: topology.Fanout}}}
	return hop, err
}

// While the destination of a copy can still appear, for example during an import of definitions, the worker tries again. After a
// minute it parks, and later messages immediately.
func TestUnroutedCopyWaitsForItsDestination(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Strategy: topology.Strategy{Route: later{}}, Policy: reprise.Policy{MaxAttempts: 2},
			Handler: newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(time.Hour, errScripted) }),
		})
		r.publish("", "work", amqp.Publishing{MessageId: "first"})
		time.Sleep(50 * time.Second)
		if n := r.depth("work.failed"); n != 0 {
			t.Fatalf("%d messages are parked before the destination could appear, want 0", n)
		}
		if _, err := r.QueueDeclare("elsewhere", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.QueueBind("elsewhere", "", "later", false, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if n, parked := r.depth("elsewhere"), r.depth("work.failed"); n != 1 || parked != 0 {
			t.Errorf("got %d copies and %d parked messages, want 1 and 0", n, parked)
		}
		if err := r.QueueUnbind("elsewhere", "", "later", nil); err != nil {
			t.Fatal(err)
		}
		for n, wait := range []time.Duration{90 * time.Second, time.Second} {
			r.publish("", "work", amqp.Publishing{MessageId: "second"})
			time.Sleep(wait)
			if parked := r.depth("work.failed"); parked != n+1 {
				t.Errorf("%d messages are parked, want %d", parked, n+1)
			}
		}
	})
}

// wideMarks are marks that do not fit into a parked copy.
type wideMarks struct{ topology.Trail }

func (m wideMarks) Park(headers topology.Table, f topology.Failure) topology.Table {
	headers = m.Trail.Park(headers, f)
	headers["wide"] = strings.Repeat("x", 200_000)
	return headers
}

// If neither the retry nor a parked copy with marks is possible, the message is parked without marks.
func TestMessageIsParkedWithoutMarks(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, _ := r.names(topology.Buckets{})
		wait := queue + ".wait.1000-1250"
		for _, name := range []string{queue, wait} { // the worker expects other arguments of the wait queue
			if _, err := r.QueueDeclare(name, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.deleteQueues(wait)
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, Strategy: topology.Strategy{Marks: wideMarks{}},
			Handler: newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(time.Second, errScripted) }),
		})
		r.publish("", queue, amqp.Publishing{MessageId: "first"})
		if d := r.take(queue + ".failed"); d.MessageId != "first" || d.Headers["wide"] != nil {
			t.Errorf("got %s with headers %v, want first without marks", d.MessageId, d.Headers)
		}
	})
}

// If a full queue refuses the copies of failed messages for a minute, the worker reports it and processes the messages behind
// them. When the queue has room, the messages are parked after their only attempt.
func TestLastingNackIsReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const failing = 8
		c := dial()
		full := topology.Topology{Queues: []topology.Queue{{Name: "work.failed", Args: topology.Table{"x-max-length": 1, "x-overflow": "reject-publish"}}}}
		if err := c.Declare(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		r.publish("", "work.failed", amqp.Publishing{MessageId: "first"})
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "good" {
				return nil
			}
			return reprise.Park(errScripted)
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: h, Topology: full, Concurrency: 1, Prefetch: 4})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		for i := range failing {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		r.publish("", "work", amqp.Publishing{MessageId: "good"})
		time.Sleep(30 * time.Second)
		if err := w.Status().Err; err != nil {
			t.Errorf("status after 30 s: got %v, want none, because the queue may soon have room", err)
		}
		time.Sleep(5 * time.Minute)
		if err := w.Status().Err; !errors.Is(err, reprise.ErrCopyRefused) || !errors.Is(err, reprise.ErrNacked) {
			t.Errorf("status after 5 min: got %v, want ErrCopyRefused and ErrNacked", err)
		}
		if n := h.count(); n != failing+1 {
			t.Errorf("attempts: got %d, want %d", n, failing+1)
		}
		for range failing {
			r.take("work.failed")
		}
		time.Sleep(5 * time.Minute)
		if err := w.Status().Err; err != nil {
			t.Errorf("status after the queue has room: got %v", err)
		}
		r.take("work.failed")
		if n := h.count(); n != failing+1 {
			t.Errorf("attempts after the queue has room: got %d, want %d", n, failing+1)
		}
		if err := errors.Join(w.Shutdown(t.Context()), <-ended); err != nil {
			t.Error(err)
		}
	})
}
