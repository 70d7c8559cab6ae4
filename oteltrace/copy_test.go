package oteltrace_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/oteltrace"
)

// Each copy of a failed message has a span in the trace of its attempt. A span named park shows that no attempt is left.
func TestCopiesHaveSpans(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRecorder()
		client := dial(t, b.URL, nil, oteltrace.Observer(r.config))
		queue := names(t, b.URL)
		r.run(t, client, queue, 10*time.Millisecond, func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt == 2 {
				return reprise.Park(errTest)
			}
			return errTest
		})
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: "order 17"}); err != nil {
			t.Fatal(err)
		}
		spans := r.wait(t, 4) // sorted: an attempt starts before its copy
		var got []map[string]string
		for i, s := range spans {
			a := attributes(s.Attributes())
			if delete(a, "error.type"); i%2 == 1 && s.Parent().SpanID() != spans[i-1].SpanContext().SpanID() {
				t.Errorf("parent of %s: got %v, want %s", s.Name(), s.Parent(), spans[i-1].Name())
			}
			a["name"], a["kind"] = s.Name(), s.SpanKind().String()
			got = append(got, a)
		}
		attempt := func(number, outcome string) map[string]string {
			return map[string]string{
				"name": "process " + queue, "kind": "consumer", "messaging.system": "rabbitmq", "messaging.operation.name": "process",
				"messaging.operation.type": "process", "messaging.destination.name": queue, "messaging.rabbitmq.destination.routing_key": queue,
				"messaging.message.id": "order 17", "reprise.attempt": number, "reprise.outcome": outcome,
			}
		}
		sent := func(operation, number string) map[string]string {
			return map[string]string{
				"name": operation + " " + queue, "kind": "producer", "messaging.system": "rabbitmq", "messaging.operation.name": operation,
				"messaging.operation.type": "send", "messaging.destination.name": queue, "messaging.message.id": "order 17", "reprise.attempt": number,
			}
		}
		retried := sent("retry", "1")
		retried["reprise.retry_after"] = "0.01"
		want := []map[string]string{attempt("1", "retry"), retried, attempt("2", "park"), sent("park", "2")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spans, -want +got:\n%s", diff)
		}
	})
}
