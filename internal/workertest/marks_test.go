package workertest

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// The methods of an error are application code, so they can panic, as a handler can.
func TestWorkerRetriesErrorsThatPanic(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return (*nilError)(nil)
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(2)})
		r.publish("", queue, amqp.Publishing{})
		m := h.wait(t, 2)[1]
		if len(m.Errors) != 1 || !strings.Contains(m.Errors[0].Error, "the error of the handler panicked") {
			t.Errorf("recorded errors: got %+v, want one error for the panic", m.Errors)
		}
	})
}

// panickingMarks implements Marks. It panics in the method that the header "panic" of a message names.
type panickingMarks struct{ topology.Trail }

func (panickingMarks) Read(d topology.Delivery) topology.History {
	if d.Headers["panic"] == "read" {
		panic("read")
	}
	return topology.Trail{}.Read(d)
}

func (panickingMarks) Retry(h topology.Table, f topology.Failure) topology.Table {
	if h["panic"] == "retry" || h["panic"] == "park" {
		panic("retry")
	}
	return topology.Trail{}.Retry(h, f)
}

func (panickingMarks) Park(h topology.Table, f topology.Failure) topology.Table {
	if h["panic"] == "park" {
		panic("park")
	}
	return topology.Trail{}.Park(h, f)
}

// If the Marks panic for a retry, the worker parks the message, and unchanged if they panic for parking, too. If such
// messages stayed unsettled, they would exhaust the prefetch, and the worker would not receive further messages.
func TestWorkerParksUnmarkableMessageUnchanged(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		strategy.Marks = panickingMarks{}
		h := newScript(func(m *reprise.Delivery) error {
			if m.Type == "bad" {
				return errScripted
			}
			return nil
		})
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Prefetch: 1})
		full := strings.Repeat("x", 131072-8-14-4-2-5-1-60)
		for _, headers := range []amqp.Table{{"panic": "read"}, {"panic": "park"}, {"full": full}} {
			r.publish("", queue, amqp.Publishing{MessageId: "id", Type: "bad", Headers: headers})
			d := r.take(queue + ".failed")
			delete(d.Headers, "x-delivery-count") // added by the broker for this delivery
			if d.MessageId != "id" || len(d.Headers) != 1 {
				t.Errorf("parked message: got ID %q and headers %.200v, want id and one header", d.MessageId, d.Headers)
			}
		}
		r.publish("", queue, amqp.Publishing{MessageId: "id", Type: "bad", Headers: amqp.Table{"panic": "retry"}})
		if d := r.take(queue + ".failed"); !strings.Contains(fmt.Sprint(d.Headers), "cannot retry the message: reprise: the strategy or policy panicked: retry") {
			t.Errorf("parked message: got headers %.200v, want the panic in its errors", d.Headers)
		}
		r.publish("", queue, amqp.Publishing{MessageId: "good"})
		for n := 1; ; n++ {
			if seen := h.wait(t, n); seen[n-1].MessageID == "good" {
				break
			}
		}
		if handled, parked := c.log.count("cannot be handled"), c.log.count("parked"); handled != 1 || parked != 4 {
			t.Errorf("log lines: got %d for handling and %d for parking, want 1 and 4", handled, parked)
		}
	})
}
