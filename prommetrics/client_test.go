package prommetrics_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/prommetrics"
	"github.com/reprisemq/reprise/topology"
)

func TestMetricsCountClientEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t, prommetrics.Config{})
		link := newLink(t, broker.Config{})
		expect := func(want map[string]float64) {
			t.Helper()
			expect(t, m, want)
		}
		const publish, consume = `{connection="publish"}`, `{connection="consume"}`

		expect(map[string]float64{`connection_up` + publish: 0, `connection_up` + consume: 0})
		client := link.client(t, m)
		expect(map[string]float64{
			`connection_up` + publish: 1, `connection_up` + consume: 1,
			`connection_blocked` + publish: 0, `connection_blocked` + consume: 0,
			`reconnects_total` + publish: 0, `reconnects_total` + consume: 0,
		})

		if err := client.Declare(t.Context(), topology.Buckets{}.Topology("orders")); err != nil {
			t.Fatal(err)
		}
		for _, message := range []*reprise.Message{
			{RoutingKey: "orders"},
			{RoutingKey: "orders", Expiration: -1},
			{RoutingKey: "no such queue"},
		} {
			_ = client.Publish(t.Context(), message)
		}
		expect(map[string]float64{
			`published_total{result="ok"}`: 1, `published_total{result="unroutable"}`: 1, `published_total{result="invalid"}`: 1,
			`publish_duration_seconds_count`: 1,
		})

		link.cut()
		expect(map[string]float64{`connection_up` + publish: 0, `connection_up` + consume: 0, `reconnects_total` + publish: 0})
		time.Sleep(2 * time.Second)
		expect(map[string]float64{
			`connection_up` + publish: 1, `connection_up` + consume: 1,
			`reconnects_total` + publish: 1, `reconnects_total` + consume: 1,
		})

		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		expect(map[string]float64{`connection_up` + publish: 0, `connection_up` + consume: 0})
	})
}

// The metrics report a connection that the broker blocks because of a memory alarm. The test does not use virtual time,
// because the AMQP client holds a lock while the broker does not read, which stops the clock of a bubble.
func TestMetricsReportBlockedConnection(t *testing.T) {
	m := newMetrics(t, prommetrics.Config{})
	client := newLink(t, broker.Config{MemoryLimit: 10_000}).client(t, m)
	if err := client.Declare(t.Context(), topology.Buckets{}.Topology("orders")); err != nil {
		t.Fatal(err)
	}
	published := make(chan error, 1)
	go func() {
		message := reprise.Message{RoutingKey: "orders", Body: make([]byte, 10_000)}
		published <- errors.Join(client.Publish(t.Context(), &message), client.Publish(t.Context(), &message)) // the first message reaches the limit
	}()
	blocked := func(want float64) func() bool {
		return func() bool { return samples(t, m)[`connection_blocked{connection="publish"}`] == want }
	}
	testkit.Eventually(t, timeout, blocked(1))

	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:   "orders",
		Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(context.WithoutCancel(t.Context())) }()
	testkit.Eventually(t, timeout, blocked(0)) // processing the messages frees their memory
	if err := <-published; err != nil {
		t.Error(err)
	}
	if err := worker.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

const timeout = 2 * time.Minute
