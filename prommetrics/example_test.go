package prommetrics_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() != "reprise_attempts_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			fmt.Println(metric.GetLabel()[0].GetValue(), metric.GetCounter().GetValue())
		}
	}
	// Output:
	// <nil>
	// done 1
	// dropped 0
	// given_back 0
	// lost 0
	// parked 0
	// retried 2
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
