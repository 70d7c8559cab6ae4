package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/reprisetest"
)

// runUntilEnd runs f until t ends.
func runUntilEnd(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { f(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// If a downstream system of a worker fails, the history of the queue shows a rise of failures. The test runs in virtual
// time.
func TestRiseReportsOutage(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		db := openSQLite(t)
		db.SetMaxOpenConns(1)
		archive := must(store.Open(t.Context(), db.DB, store.Config{Dialect: store.SQLite}))(t)
		h := must(Open(t.Context(), db.DB, Config{Dialect: store.SQLite}))(t)
		client := b.Client(t, &reprise.Config{Announce: true})
		list := fleet.New(client)
		list.Observe(h.Observe)
		runUntilEnd(t, func(ctx context.Context) { _ = list.Run(ctx) })
		runUntilEnd(t, func(ctx context.Context) { h.Run(ctx, Sources{Archive: archive, Listening: client.Healthy}) })

		var down atomic.Bool
		b.WorkWith(t, client, reprise.WorkerConfig{
			Queue: "orders", Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(20 * time.Second)},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				time.Sleep(30 * time.Millisecond)
				if down.Load() {
					return errors.New("connection refused")
				}
				return nil
			}),
		})
		publish := func(lasts time.Duration) (n uint64) {
			for begun := time.Now(); time.Since(begun) < lasts; n++ {
				b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: fmt.Append(nil, n)})
				time.Sleep(2 * time.Second)
			}
			return n
		}
		succeeded := publish(10*time.Minute + 23*time.Second)
		if _, err := h.AddMark(t.Context(), Mark{Text: "v2.4", By: "ann"}); err != nil {
			t.Fatal(err)
		}
		succeeded += publish(2 * time.Minute)
		down.Store(true)
		began := time.Now()
		published := publish(6 * time.Minute)
		time.Sleep(time.Minute) // for retries and statuses
		down.Store(false)

		s := must(h.Series(t.Context(), "orders", Hour))(t)
		sum := s.Sum()
		if sum.Succeeded != succeeded || sum.Failed != 2*published || sum.Parked != published || sum.Retried != published {
			t.Errorf("got totals %+v, want %d successes and %d failing messages", sum, succeeded, published)
		}
		if n, p50 := sum.Took.Count(), sum.Took.Quantile(0.5); n != succeeded+2*published || p50 != 32*time.Millisecond {
			t.Errorf("handling times: got %d attempts and p50 %s, want %d and 32ms", n, p50, succeeded+2*published)
		}
		rises := s.Rises(must(h.Marks(t.Context(), time.Time{}))(t))
		if len(rises) != 1 {
			t.Fatalf("got %d rises, want 1", len(rises))
		}
		if late := rises[0].Latest.Sub(began); late < 0 || late > 2*time.Minute {
			t.Errorf("rise: got a start between %s and %s, want %s", rises[0].Earliest, rises[0].Latest, began)
		}
		if text := rises[0].String(); !strings.HasPrefix(text, "Failures rose from 0/min to ") || !strings.Contains(text, "min after the mark “v2.4”") {
			t.Errorf("text of the rise: got %q, want a rise from 0/min after the mark v2.4", text)
		}
	})
}
