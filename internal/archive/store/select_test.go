package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Acts refuse an empty filter. Otherwise a caller who forgets to set it would select all messages.
func TestActsRefuseEmptyFilter(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}, {Message: failed.Message{FailedQueue: "mails.failed"}}}))(t)
		acts := map[string]func(failed.Filter) error{
			"discard": func(f failed.Filter) error { _, err := a.Discard(ctx, f, "a test", "me"); return err },
			"restore": func(f failed.Filter) error { _, err := a.Restore(ctx, f, "me"); return err },
			"replay":  func(f failed.Filter) error { _, err := a.BeginReplay(ctx, failed.Plan{Filter: f}, "me"); return err },
		}
		for name, act := range acts {
			if err := act(failed.Filter{}); !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), "Filter{All: true}") {
				t.Errorf("%s with the empty filter: got error %v, want ErrInvalid", name, err)
			}
			if err := act(failed.Filter{All: true, Queue: "orders"}); !errors.Is(err, failed.ErrInvalid) {
				t.Errorf("%s with All and a queue: got error %v, want ErrInvalid", name, err)
			}
		}
		if n := value(a.Count(ctx, failed.Filter{States: []failed.State{failed.Failed}}))(t); n.N != 2 {
			t.Fatalf("got %d failed messages, want 2", n.N)
		}
		for _, name := range []string{"discard", "restore", "replay"} {
			if err := acts[name](failed.Filter{All: true}); err != nil {
				t.Errorf("%s with All: got error %v, want none", name, err)
			}
		}
		if n := value(a.Count(ctx, failed.Filter{All: true}))(t); n.N != 2 {
			t.Errorf("got %d messages, want 2", n.N)
		}
		if n := value(a.Count(ctx, failed.Filter{States: []failed.State{failed.Replaying}}))(t); n.N != 2 {
			t.Errorf("got %d messages in state replaying, want 2", n.N)
		}
	})
}
