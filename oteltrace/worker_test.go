package oteltrace_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/oteltrace"
	"github.com/reprisemq/reprise/topology"
)

const timeout = 2 * time.Minute

// A message is published, fails, loses its connection, fails again and succeeds. The broker transports the links between the
// spans.
func TestSpansLinkAcrossRetries(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		proxy := testkit.NewProxy(t, b.URL)
		interrupted := make(chan struct{}, 100)
		client := dial(t, proxy.URL(), nil, reprise.ObserverFunc(func(e reprise.Event) {
			if e.Kind == reprise.EventInterrupted {
				interrupted <- struct{}{}
			}
		}))
		queue := names(t, b.URL)
		r := newRecorder()

		published, done := make(chan struct{}), make(chan struct{})
		var lost atomic.Bool
		r.run(t, client, queue, 10*time.Millisecond, func(_ context.Context, m *reprise.Delivery) error {
			if _, found := m.Headers[oteltrace.HeaderPrevious]; found || m.Headers["own"] != "kept" {
				t.Errorf("headers of attempt %d: got %v, want own, without the previous span", m.Attempt, m.Headers)
			}
			switch {
			case m.Attempt == 1:
				panic("oh")
			case m.Attempt == 2 && !lost.Swap(true):
				<-published
				proxy.Cut()
				<-interrupted // the broker no longer accepts the settlement
				return errTest
			case m.Attempt == 2:
				return errTest
			}
			if first := m.Errors[0].Error; !strings.HasPrefix(first, "panic: oh\n") || !strings.Contains(first, "oteltrace_test.TestSpansLinkAcrossRetries") {
				t.Errorf("error of the panic: got %s, want panic: oh with the stack", first)
			}
			close(done)
			return nil
		})

		ctx, request := r.provider.Tracer("").Start(t.Context(), "checkout")
		publish := oteltrace.Publisher(r.config, client.Publish)
		if err := publish(ctx, &reprise.Message{RoutingKey: queue, MessageID: "order 17", Headers: map[string]any{"own": "kept"}}); err != nil {
			t.Fatal(err)
		}
		close(published)
		wait(t, done)

		spans := r.wait(t, 5)
		sent, attempts := spans[0], spans[1:]
		if sent.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("parent of the publish span: got %v, want %v", sent.Parent(), request.SpanContext())
		}
		origin := producer(sent.SpanContext())
		for i, want := range []struct {
			attempt, outcome, redelivered string
			links                         []string
		}{
			{"1", "retry", "", []string{origin}},
			{"2", "retry", "", []string{origin, previous(attempts[0].SpanContext())}}, // the connection was lost, so the next attempt has no link to this one
			{"2", "retry", "true", []string{origin, previous(attempts[0].SpanContext())}},
			{"3", "done", "true", []string{origin, previous(attempts[2].SpanContext())}},
		} {
			s := attempts[i]
			got := attributes(s.Attributes())
			if got["reprise.attempt"] != want.attempt || got["reprise.outcome"] != want.outcome || got["reprise.redelivered"] != want.redelivered ||
				got["messaging.message.id"] != "order 17" || got["messaging.destination.name"] != queue {
				t.Errorf("attributes of span %d: got %v, want %+v", i+1, got, want)
			}
			if diff := cmp.Diff(want.links, linked(s)); diff != "" {
				t.Errorf("span %d, links, -want +got:\n%s", i+1, diff)
			}
			if s.Parent().IsValid() || s.SpanContext().TraceID() == sent.SpanContext().TraceID() {
				t.Errorf("span %d must start a trace without a parent: got trace %s and parent %v", i+1, s.SpanContext().TraceID(), s.Parent())
			}
		}
	})
}

// A span shows the outcome that the worker derives from the error.
func TestSpanOutcomesMatchWorkerEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		var mu sync.Mutex
		settled := map[string]reprise.Event{} // the first attempts, by message
		client := dial(t, "amqp://guest:guest@memory", b.DialContext, reprise.ObserverFunc(func(e reprise.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case reprise.EventDone, reprise.EventRetried, reprise.EventParked:
				if e.Attempt == 1 {
					settled[e.MessageID] = e
				}
			}
		}))
		r := newRecorder()
		r.run(t, client, "work", time.Hour, func(_ context.Context, m *reprise.Delivery) error { return outcomes[m.MessageID].err })
		for name := range outcomes {
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "work", MessageID: name}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Minute) // longer than all pauses
		mu.Lock()
		defer mu.Unlock()
		spans := map[string]map[string]string{}
		for _, s := range r.Ended() {
			if got := attributes(s.Attributes()); got["reprise.attempt"] == "1" {
				spans[got["messaging.message.id"]] = got
			}
		}
		words := map[string]reprise.EventKind{"done": reprise.EventDone, "retry": reprise.EventRetried, "park": reprise.EventParked}
		for name := range outcomes {
			span, event := spans[name], settled[name]
			if event.Kind == 0 || words[span["reprise.outcome"]] != event.Kind {
				t.Errorf("%s: got span %v and event %s, want the same outcome", name, span, event.Kind)
			}
			if after := span["reprise.retry_after"]; after != "" {
				if d, err := time.ParseDuration(after + "s"); err != nil || event.Delay < d || event.Delay > 2*d {
					t.Errorf("%s: got delay %s in the event, want about %s s as in the span", name, event.Delay, after)
				}
			}
		}
	})
}

// dial connects with the function by or, if by is nil, over the network.
func dial(t testing.TB, url string, by func(context.Context, string, string) (net.Conn, error), o reprise.Observer) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := reprise.Dial(ctx, url, &reprise.Config{Dial: by, Observer: o, Reconnect: backoff.Fixed(5 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client
}

// base is the delay of the first wait queue.
const base = 20 * time.Millisecond

// names returns a name for a work queue. At the end of the test, the work queue and the related queues are deleted.
func names(t testing.TB, url string) string {
	t.Helper()
	queue := testkit.Name(t, "work")
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for _, name := range []string{queue, queue + ".failed", queue + ".wait.0-20"} {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				t.Errorf("cannot delete queue %s: %v", name, err)
			}
		}
	})
	return queue
}

// run declares a queue, and runs a worker on it until the test ends.
func (r *recorder) run(t testing.TB, client *reprise.Client, queue string, delay time.Duration, handler reprise.HandlerFunc) {
	t.Helper()
	route := topology.Buckets{Base: base}
	if err := client.Declare(t.Context(), route.Topology(queue)); err != nil {
		t.Fatal(err)
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:      queue,
		Handler:    handler,
		Middleware: []reprise.Middleware{oteltrace.Middleware(r.config)},
		Strategy:   topology.Strategy{Route: route},
		Policy:     reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(delay)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		if err := worker.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

func wait(t testing.TB, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Fatal("message not processed before the timeout")
	}
}

// wait waits until n spans have ended, and returns the first n spans, sorted by start time.
func (r *recorder) wait(t testing.TB, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	testkit.Eventually(t, timeout, func() bool { return len(r.Ended()) >= n })
	spans := r.Ended()
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return spans
}
