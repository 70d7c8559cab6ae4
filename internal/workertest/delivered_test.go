package workertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// With AsDelivered, a handler receives the message as the broker delivered it, with the headers that a worker wrote when it
// parked the message.
func TestHandlerReceivesMessageAsDelivered(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		stop := start(t, c, reprise.WorkerConfig{
			Queue: work, Strategy: strategy, Policy: quick(1),
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errScripted }),
		})
		msg := everything()
		msg.Headers["CC"] = []any{"nowhere"}
		msg.Expiration = "3600000"
		r.publish("", work, msg)
		c.log.wait(t, "parked", 1)
		if err := stop(); err != nil {
			t.Fatal(err)
		}

		seen := make(chan *reprise.Delivery, 1)
		start(t, c, reprise.WorkerConfig{
			Queue: work + ".failed", AsDelivered: true, Strategy: topology.Strategy{Route: existingQueue{}, Marks: topology.Trail{}},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { seen <- m; return nil }),
		})
		m := <-seen
		if m.Exchange != "" || m.RoutingKey != work+".failed" || m.Queue != work+".failed" {
			t.Errorf("got queue %q, exchange %q, routing key %q; want the failed queue and the default exchange", m.Queue, m.Exchange, m.RoutingKey)
		}
		if m.Attempt != 1 || m.Errors != nil || m.ErrorsDropped != 0 || !m.FirstFailed.IsZero() || m.Expiration != 0 {
			t.Errorf("got attempt %d, expiration %s, errors %v; want attempt 1 without expiration and errors", m.Attempt, m.Expiration, m.Errors)
		}
		n, _ := amqpvalue.Integer(m.Headers[topology.HeaderAttempts])
		errs, _ := m.Headers[topology.HeaderErrors].([]any)
		cc, _ := m.Headers[reprise.HeaderCC].([]any)
		if n != 1 || len(errs) != 1 || len(cc) != 1 || m.Headers["CC"] != nil ||
			m.Headers[topology.HeaderQueue] != work || m.Headers[reprise.HeaderExpiration] != "3600000" {
			t.Errorf("headers: got %v, want the headers of the parked message", m.Headers)
		}
		for name, value := range msg.Headers {
			if name == "CC" {
				continue
			}
			if diff := cmp.Diff(toReprise(value), m.Headers[name]); diff != "" {
				t.Errorf("header %s: -want +got:\n%s", name, diff)
			}
		}
	})
}

// existingQueue is a route that declares nothing, for a queue that exists.
type existingQueue struct{ topology.Requeuing }

func (existingQueue) Topology(string) topology.Topology { return topology.Topology{} }

// toReprise converts a header value from the types of the AMQP client to the types of Reprise.
func toReprise(v any) any {
	switch x := v.(type) {
	case amqp.Table:
		t := topology.Table{}
		for name, value := range x {
			t[name] = toReprise(value)
		}
		return t
	case []any:
		all := make([]any, len(x))
		for i, value := range x {
			all[i] = toReprise(value)
		}
		return all
	}
	return v
}

// acks records the arguments of Acked.
type acks struct {
	mu      sync.Mutex
	results []error
	about   []*reprise.Delivery
}

func (a *acks) acked(m *reprise.Delivery, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.results, a.about = append(a.results, err), append(a.about, m)
}

func (a *acks) all() ([]error, []*reprise.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.results, a.about
}

// If Acked gets a nil error, the broker never redelivers the message, even if the connection is lost at that moment. If the
// ack is lost, Acked gets an error.
func TestAckedReportsWhetherBrokerReceivedAck(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		var a acks
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "cut" && !m.Redelivered {
				proxy.Cut()
				r.publish("", work, amqp.Publishing{MessageId: "after"}) // delivered after the worker has detected the lost channel
			}
			return nil
		})
		c := dial(t, proxy.URL())
		stop := start(t, c, reprise.WorkerConfig{Queue: work, Strategy: strategy, Handler: h, Acked: a.acked})
		r.publish("", work, amqp.Publishing{MessageId: "first"})
		testkit.Eventually(t, timeout, func() bool { results, _ := a.all(); return len(results) == 1 })
		r.publish("", work, amqp.Publishing{MessageId: "cut"})
		testkit.Eventually(t, timeout, func() bool { results, _ := a.all(); return len(results) == 4 })
		if err := stop(); err != nil {
			t.Error(err)
		}
		results, about := a.all()
		got := map[string][]bool{}
		for i, err := range results {
			got[about[i].MessageID] = append(got[about[i].MessageID], err == nil)
		}
		want := map[string][]bool{"first": {true}, "cut": {false, true}, "after": {true}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("results in Acked: -want +got:\n%s", diff)
		}
		if seen := h.wait(t, 4); len(seen) != h.count() || seen[0] != about[0] {
			t.Errorf("runs of the handler: got %d, want 4; Acked got the message of the handler: got %t, want true", h.count(), seen[0] == about[0])
		}
	})
}

// A panic in Acked does not stop the worker, and does not occupy a slot.
func TestWorkerSurvivesPanicInAcked(t *testing.T) {
	t.Parallel()
	b := testkit.Embedded(t)
	r, c := newRaw(t, b.URL), dial(t, b.URL)
	work, strategy := r.names(topology.Buckets{})
	h := newScript(func(*reprise.Delivery) error { return nil })
	start(t, c, reprise.WorkerConfig{
		Queue: work, Strategy: strategy, Handler: h,
		Acked: func(*reprise.Delivery, error) { panic("told") },
	})
	for range 2 {
		r.publish("", work, amqp.Publishing{})
	}
	c.log.wait(t, "Acked failed", 2)
	testkit.Eventually(t, 2*time.Minute, func() bool { return r.depth(work) == 0 })
}
