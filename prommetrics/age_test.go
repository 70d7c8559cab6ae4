package prommetrics_test

import (
	"context"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/prommetrics"
	"github.com/reprisemq/reprise/topology"
)

// The histogram that the alert RepriseFallsBehind uses includes messages of all publish methods. The age excludes the
// requested delay of a message.
func TestMessageAgeExcludesRequestedDelay(t *testing.T) {
	docs, err := os.ReadFile("../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	alert := regexp.MustCompile(`alert: RepriseFallsBehind\s+expr: .*rate\((\w+)_bucket\[\w+\]\)\)\) > 300\n`).FindSubmatch(docs)
	if alert == nil {
		t.Fatal("alert RepriseFallsBehind not found in docs/observability.md")
	}
	histogram := string(alert[1])
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t, prommetrics.Config{})
		client := newLink(t, broker.Config{}).client(t, m)
		if err := client.Declare(t.Context(), topology.Buckets{}.Topology("orders")); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		one := &reprise.Message{RoutingKey: "orders"}
		for _, err := range []error{
			client.Publish(t.Context(), one),
			client.PublishBatch(t.Context(), []*reprise.Message{{RoutingKey: "orders"}, {RoutingKey: "orders"}}),
			client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Timestamp: old}),
			client.PublishIn(t.Context(), 10*time.Minute, &reprise.Message{RoutingKey: "orders"}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10*time.Minute + 2*time.Second)
		seen := make(chan bool)
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: "orders", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				seen <- true
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(context.WithoutCancel(t.Context())) }()
		for range 5 {
			<-seen
		}
		synctest.Wait()
		got := map[float64]uint64{}
		for _, family := range value(registry(t, m).Gather())(t) {
			if family.GetName() == histogram {
				for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
					got[b.GetUpperBound()] = b.GetCumulativeCount()
				}
			}
		}
		for bound, want := range map[float64]uint64{
			5:     1, // PublishIn
			300:   1,
			900:   4,
			14400: 5, // timestamp of the publisher
		} {
			if got[bound] != want {
				t.Errorf("messages up to %[2]v s: got %[1]d, want %[3]d (%[4]v)", got[bound], bound, want, got)
			}
		}
		if !one.Timestamp.IsZero() {
			t.Errorf("timestamp of the caller's message: got %s, want zero", one.Timestamp)
		}
		if err := worker.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
