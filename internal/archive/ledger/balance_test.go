package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
)

var errNotNow = errors.New("not now")

// obey is a handler that follows the instruction in the body.
func obey(_ context.Context, m *reprise.Delivery) error {
	switch {
	case strings.HasPrefix(string(m.Body), "twice") && m.Attempt < 2:
		return errNotNow
	case strings.HasPrefix(string(m.Body), "never"):
		return errNotNow
	case strings.HasPrefix(string(m.Body), "late"):
		return reprise.RetryAfter(24*time.Hour, errNotNow)
	}
	return nil
}

// wants compares a line with the expected line of a balanced account.
func wants(t *testing.T, got, want ledger.Line) {
	t.Helper()
	want.Name, want.State, want.Since, want.At = "orders", ledger.Balanced, got.Since, got.At
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
}

// An account is exactly balanced, regardless of where the messages are.
func TestBalanced(t *testing.T) {
	t.Run("done, retried, waiting, failed", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			h.orders(t, obey)
			wants(t, h.line(t), ledger.Line{})
			h.publish(t, "a", "twice", "never 1", "never 2", "late")
			wants(t, h.line(t), ledger.Line{In: 5, Done: 2, Waiting: 1, Failed: 2})
		})
	})
	t.Run("ready and unacked", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			proceed := make(chan struct{})
			h.orders(t, func(context.Context, *reprise.Delivery) error { <-proceed; return nil }, func(c *reprise.WorkerConfig) {
				c.Concurrency, c.Prefetch = 1, 1
			})
			h.line(t)
			h.publish(t, "a", "b", "c")
			wants(t, h.line(t), ledger.Line{In: 3, Ready: 2, Unacked: 1})
			close(proceed)
			wants(t, h.line(t), ledger.Line{In: 3, Done: 3})
		})
	})
	t.Run("messages before the ledger opened", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			w := h.orders(t, obey)
			h.publish(t, "never", "twice", "a")
			h.Drain(t)
			w.Stop()
			h.publish(t, "b")
			wants(t, h.line(t), ledger.Line{In: 2, Ready: 1, Failed: 1})
		})
	})
	t.Run("debounced", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			h.orders(t, obey, func(c *reprise.WorkerConfig) {
				c.Debounce = &reprise.Debounce{Window: time.Second, Key: reprise.ContentKey}
			})
			h.line(t)
			h.publish(t, "a", "a", "a", "twice", "twice")
			wants(t, h.line(t), ledger.Line{In: 5, Done: 5})
		})
	})
	t.Run("scheduled", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			h.orders(t, obey)
			h.line(t)
			if err := h.client.PublishIn(t.Context(), time.Hour, &reprise.Message{RoutingKey: "orders"}); err != nil {
				t.Fatal(err)
			}
			wants(t, h.line(t), ledger.Line{In: 1, Waiting: 1})
			time.Sleep(time.Hour)
			wants(t, h.line(t), ledger.Line{In: 1, Done: 1})
		})
	})
	t.Run("lost connection without duplicates", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			h.orders(t, func(ctx context.Context, m *reprise.Delivery) error {
				time.Sleep(10 * time.Second)
				return obey(ctx, m)
			})
			h.line(t)
			h.publish(t, "a", "twice", "never")
			time.Sleep(5 * time.Second)
			h.Cut()
			h.Drain(t)
			wants(t, h.line(t), ledger.Line{In: 3, Done: 2, Failed: 1})
		})
	})
	t.Run("archived, replayed, discarded", func(t *testing.T) {
		runEnv(t, func(t *testing.T, h *env) {
			h.orders(t, obey)
			h.line(t)
			h.publish(t, "never 1", "never 2", "never 3")
			wants(t, h.line(t), ledger.Line{In: 3, Failed: 3})
			ingest, err := ingest.New(h.Client(t, nil), h.archive, ingest.Config{Queues: []string{"orders.failed"}})
			if err != nil {
				t.Fatal(err)
			}
			run(t, ingest.Run)
			replayer := replay.New(h.Client(t, nil), h.archive, replay.Config{})
			run(t, replayer.Run)
			wants(t, h.line(t), ledger.Line{In: 3, Failed: 3})
			if _, err := h.archive.Discard(t.Context(), failed.Filter{IDs: []failed.ID{1}}, "a test", "tester"); err != nil {
				t.Fatal(err)
			}
			wants(t, h.line(t), ledger.Line{In: 3, Failed: 2, Discarded: 1})
			if _, err := h.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{2}}, IgnoreSame: true}, "tester"); err != nil {
				t.Fatal(err)
			}
			// The message was published a second time, and failed again.
			wants(t, h.line(t), ledger.Line{In: 4, Failed: 2, Discarded: 1, Replayed: 1})
		})
	})
}
