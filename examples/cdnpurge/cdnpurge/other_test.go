package cdnpurge_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// The x-death entries of a scheduled purge contain other wait queues, and do not contain an expiration. The other
// program therefore treats the first failure of the purge as a failed first attempt.
func TestOtherBacksOffScheduledPurges(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		conn := clean(t, b)
		removeLevels(t, conn)
		// Other is no worker, but it can read scheduled messages.
		design := cdnpurge.Design{First: 20 * time.Millisecond, WorkersOnly: true}
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.WithoutCancel(t.Context()))
		if err := client.Declare(t.Context(), design.Topology()); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusInsufficientStorage)
			}
		}))
		defer cdn.Close()
		err = client.PublishIn(t.Context(), time.Millisecond, &reprise.Message{Exchange: preset.CDNPurgeExchange, RoutingKey: "tag", MessageID: "id", Body: []byte(`["news"]`)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
		defer end()
		done := ""
		other := &cdnpurge.Other{Design: design, Purger: &cdnpurge.Purger{URL: cdn.URL}, Done: func(id string) { done = id; end() }}
		if err := other.Run(ctx, conn); err != nil && done == "" {
			t.Error(err)
		}
		if done != "id" || asked.Load() != 2 {
			t.Errorf("got %q after %d calls of the CDN, want id after 2 calls", done, asked.Load())
		}
	})
}

// The other program uses the queue and the wait exchange of its Design.
func TestOtherUsesNamesOfDesign(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		conn := clean(t, b)
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		design := cdnpurge.Design{Exchange: "other-purges", Queue: "other-purges-work", First: 20 * time.Millisecond}
		names := design.Topology()
		t.Cleanup(func() {
			for _, q := range names.Queues {
				_, _ = ch.QueueDelete(q.Name, false, false, false)
			}
			for _, x := range names.Exchanges {
				_ = ch.ExchangeDelete(x.Name, false, false)
			}
		})
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.WithoutCancel(t.Context()))
		if err := client.Declare(t.Context(), names); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusInsufficientStorage)
			}
		}))
		defer cdn.Close()
		err = client.Publish(t.Context(), &reprise.Message{Exchange: design.Exchange, RoutingKey: "tag", MessageID: "id", Body: []byte(`["news"]`)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
		defer end()
		done := ""
		other := &cdnpurge.Other{Design: design, Purger: &cdnpurge.Purger{URL: cdn.URL}, Done: func(id string) { done = id; end() }}
		if err := other.Run(ctx, conn); err != nil && done == "" {
			t.Error(err)
		}
		if done != "id" || asked.Load() != 2 {
			t.Errorf("got %q after %d calls of the CDN, want id after 2 calls", done, asked.Load())
		}
	})
}

// removeLevels deletes, after the test, the wait queues and exchanges for scheduled messages.
func removeLevels(t *testing.T, conn *amqp.Connection) {
	t.Helper()
	levels, err := topology.Levels{}.Schedule(preset.CDNPurgeExchange, "tag", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range levels.Topology.Queues {
			if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
				t.Error(err)
			}
		}
		for _, x := range levels.Topology.Exchanges {
			if err := ch.ExchangeDelete(x.Name, false, false); err != nil {
				t.Error(err)
			}
		}
	})
}
