package oteltrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/oteltrace"
	"github.com/reprisemq/reprise/topology"
)

// This example prints the spans and links of a message that succeeds on the second attempt.
func Example() {
	ctx := context.Background()
	recorder := tracetest.NewSpanRecorder() // your exporter
	config := oteltrace.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))}

	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	if err := client.Declare(ctx, topology.Buckets{}.Topology("orders")); err != nil {
		fmt.Println(err)
		return
	}

	publish := oteltrace.Publisher(config, client.Publish)
	if err := publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")}); err != nil {
		fmt.Println(err)
		return
	}

	done := make(chan struct{})
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:      "orders",
		Middleware: []reprise.Middleware{oteltrace.Middleware(config)},
		Policy:     reprise.Policy{Backoff: backoff.Fixed(10 * time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt < 2 {
				return errors.New("the till is busy")
			}
			close(done)
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	running := make(chan error, 1)
	go func() { running <- worker.Run(ctx) }()
	<-done
	worker.Shutdown(ctx)
	fmt.Println(<-running)

	for _, span := range recorder.Ended() {
		fmt.Println(span.Name())
		if span.Status().Code == codes.Error {
			fmt.Println("  failed:", span.Status().Description)
		}
		for _, link := range span.Links() {
			fmt.Println("  linked to", link.Attributes[0].Value.String())
		}
	}
	// Output:
	// <nil>
	// publish orders
	// process orders
	//   failed: the till is busy
	//   linked to producer
	// process orders
	//   linked to producer
	//   linked to previous_attempt
}

// This example prints the header that links the attempts to the publisher's span.
func ExamplePublisher() {
	config := oteltrace.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(new(countingIDs)))}

	// In a program: oteltrace.Publisher(config, client.Publish)
	publish := oteltrace.Publisher(config, func(_ context.Context, m *reprise.Message) error {
		fmt.Println(m.Headers["traceparent"])
		return nil
	})
	if err := publish(context.Background(), &reprise.Message{RoutingKey: "orders"}); err != nil {
		fmt.Println(err)
	}
	// Output: 00-00000000000000000000000000000001-0000000000000002-01
}

// countingIDs generates the same trace IDs in each run.
type countingIDs struct{ last atomic.Uint64 }

func (c *countingIDs) NewIDs(ctx context.Context) (id trace.TraceID, _ trace.SpanID) {
	binary.BigEndian.PutUint64(id[8:], c.last.Add(1))
	return id, c.NewSpanID(ctx, id)
}

func (c *countingIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], c.last.Add(1))
	return id
}

// followLinks is a sampler that samples a span if one of its links is sampled. Therefore a message is sampled with all
// attempts, or not at all. The embedded Sampler decides for all other spans.
type followLinks struct{ sdktrace.Sampler }

func (f followLinks) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if slices.ContainsFunc(p.Links, func(l trace.Link) bool { return l.SpanContext.IsSampled() }) {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return f.Sampler.ShouldSample(p)
}

// Each attempt is a new trace. This example configures a head sampler that samples an attempt if a linked span is sampled.
func ExampleMiddleware_sampling() {
	config := oteltrace.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(
		sdktrace.ParentBased(followLinks{sdktrace.TraceIDRatioBased(0)}), // 0.01, say
	))}
	handler := oteltrace.Middleware(config)(reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		fmt.Println("attempt", m.Attempt, "is sampled:", trace.SpanContextFromContext(ctx).IsSampled())
		return nil
	}))
	ids := strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16)
	for _, traceparent := range []string{"00-" + ids + "-00", "00-" + ids + "-01"} {
		handler.Handle(context.Background(), &reprise.Delivery{Message: reprise.Message{Headers: map[string]any{"traceparent": traceparent}}, Queue: "orders", Attempt: 1})
	}
	// Output:
	// attempt 1 is sampled: false
	// attempt 1 is sampled: true
}
