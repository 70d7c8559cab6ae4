package prommetrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/prommetrics"
	"github.com/reprisemq/reprise/topology"
)

// This example prints metrics of a message that succeeds on the third attempt.
func Example() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()
	metrics, err := prommetrics.New(prommetrics.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry.MustRegister(metrics)

	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext, Observer: metrics})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	if err := client.Declare(ctx, topology.Buckets{}.Topology("orders")); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")}); err != nil {
		fmt.Println(err)
		return
	}

	done := make(chan struct{})
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{Backoff: backoff.Fixed(10 * time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt < 3 {
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

	// In a program: http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	text, err := testutil.GatherAndFormat(registry, expfmt.TypeTextPlain, "reprise_attempts_total", "reprise_attempts_running")
	if err != nil {
		fmt.Println(err)
	}
	os.Stdout.Write(text)
	// Output:
	// <nil>
	// # HELP reprise_attempts_running Handlers that are running now.
	// # TYPE reprise_attempts_running gauge
	// reprise_attempts_running{queue="orders"} 0
	// # HELP reprise_attempts_total Attempts by outcome.
	// # TYPE reprise_attempts_total counter
	// reprise_attempts_total{outcome="done",queue="orders"} 1
	// reprise_attempts_total{outcome="dropped",queue="orders"} 0
	// reprise_attempts_total{outcome="given_back",queue="orders"} 0
	// reprise_attempts_total{outcome="lost",queue="orders"} 0
	// reprise_attempts_total{outcome="parked",queue="orders"} 0
	// reprise_attempts_total{outcome="retried",queue="orders"} 2
}

// In this example, a label distinguishes two clients in one process.
func ExampleNew_severalClients() {
	registry := prometheus.NewRegistry()
	for _, region := range []string{"eu", "us"} {
		metrics, err := prommetrics.New(prommetrics.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		prometheus.WrapRegistererWith(prometheus.Labels{"region": region}, registry).MustRegister(metrics)

		// In a program: reprise.Dial(ctx, url[region], &reprise.Config{Observer: metrics})
		metrics.Observe(reprise.Event{Kind: reprise.EventConnected, Connection: "publish"})
	}
	n, err := testutil.GatherAndCount(registry, "reprise_connection_up")
	fmt.Println(n, "connections,", err)
	// Output: 4 connections, <nil>
}

// This example sets histogram buckets for a slow handler and a policy with 25 attempts.
func ExampleConfig() {
	config := prommetrics.Config{
		HandlerDuration: []float64{1, 5, 10, 30, 60, 120},
		MessageAttempts: []float64{1, 2, 5, 10, 25},
	}
	fmt.Println(config.Validate())

	config.HandlerDuration = []float64{60, 30}
	fmt.Println(config.Validate())
	// Output:
	// <nil>
	// prommetrics: bounds of Config.HandlerDuration must increase: got 30 after 60
}
