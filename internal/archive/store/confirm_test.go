package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

func TestActsRefuseMoreThanConfirmed(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		add := func() {
			value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "a.failed", Error: "order 1: down"}}}))(t)
		}
		add()
		add()
		for name, f := range map[string]failed.Filter{"all": {All: true}, "group": {Group: 1}, "words": {Text: "down"}, "states": {Queue: "a", States: []failed.State{failed.Failed}}} {
			n := value(a.CountState(t.Context(), f, failed.Failed))(t)
			f.AtMost = n
			add()
			_, err := a.Discard(t.Context(), f, "tested", "me")
			if !errors.Is(err, failed.ErrState) {
				t.Errorf("%s: discard: got error %v, want ErrState", name, err)
			}
			if _, err := a.BeginReplay(t.Context(), failed.Plan{Filter: f}, "me"); !errors.Is(err, failed.ErrState) {
				t.Errorf("%s: replay: got error %v, want ErrState", name, err)
			}
			if _, err := a.Erase(t.Context(), f, "tested", "me"); !errors.Is(err, failed.ErrState) {
				t.Errorf("%s: erase: got error %v, want ErrState", name, err)
			}
			if now := value(a.CountState(t.Context(), f, failed.Failed))(t); now != n+1 {
				t.Errorf("%s: got %d failed messages, want %d", name, now, n+1)
			}
			f.AtMost = n + 1
			if done := value(a.Discard(t.Context(), f, "tested", "me"))(t); done != n+1 {
				t.Errorf("%s: got %d discarded messages, want %d", name, done, n+1)
			}
			f.States, f.AtMost = nil, n
			if _, err := a.Restore(t.Context(), f, "me"); !errors.Is(err, failed.ErrState) {
				t.Errorf("%s: restore: got error %v, want ErrState", name, err)
			}
			f.AtMost = 0
			value(a.Restore(t.Context(), f, "me"))(t)
		}
		if n := value(a.CountState(t.Context(), failed.Filter{States: []failed.State{failed.Discarded}}, failed.Failed))(t); n != 0 {
			t.Errorf("got %d messages that are both failed and discarded, want 0", n)
		}
	})
}

// Filter.Through excludes messages that arrive after Newest from counts and from actions.
func TestActsExcludeLaterMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		add := func() {
			value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "a.failed", Error: "order 1: down", Attempts: 2}}}))(t)
		}
		for name, f := range map[string]failed.Filter{
			"all": {All: true}, "group": {Group: 1}, "queue": {Queue: "a"}, "both": {Queue: "a", Group: 1}, "words": {Text: "down"},
			"states": {Queue: "a", States: []failed.State{failed.Failed}}, "attempts": {MinAttempts: 2}, "other queue": {Queue: "b"},
		} {
			add()
			f.Through = value(a.Newest(t.Context()))(t)
			n := value(a.CountState(t.Context(), f, failed.Failed))(t)
			add()
			add()
			if now := value(a.CountState(t.Context(), f, failed.Failed))(t); now != n {
				t.Errorf("%s: got %d failed messages, want %d", name, now, n)
			}
			if f.AtMost = n; n == 0 {
				continue
			}
			if done := value(a.Discard(t.Context(), f, "tested", "me"))(t); done != n {
				t.Errorf("%s: discarded %d messages, want %d", name, done, n)
			}
			f.States = nil
			if done := value(a.Restore(t.Context(), f, "me"))(t); done != n {
				t.Errorf("%s: restored %d messages, want %d", name, done, n)
			}
		}
	})
}

func TestCheckReportsUnknownNumbers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "a.failed"}}}))(t)
		value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me"))(t)
		for _, f := range []failed.Filter{{}, {Group: 1}, {IDs: []failed.ID{}}, {IDs: []failed.ID{1, 1}}, {Replay: 1}, {RefusedBy: 1}, {Queue: "unknown"}} {
			if err := a.Check(t.Context(), f); err != nil {
				t.Errorf("filter %+v: got error %v, want none", f, err)
			}
		}
		for text, f := range map[string]failed.Filter{"group 9": {Group: 9}, "message 9": {IDs: []failed.ID{1, 9, 8}}, "replay 9": {Replay: 9}, "replay 8": {RefusedBy: 8}, "replay 7": {SentBy: 7}} {
			if err := a.Check(t.Context(), f); !errors.Is(err, failed.ErrNotFound) || !strings.Contains(err.Error(), text) {
				t.Errorf("filter %+v: got error %v, want ErrNotFound with %q", f, err, text)
			}
		}
	})
}

// The count before an undo does not include the discarded messages that are erased.
func TestCountOfDiscardedMessagesIsTheNumberToRestore(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		var all []failed.Message
		for i := range 12 {
			all = append(all, failed.Message{Queue: fmt.Sprint("q", i%2), FailedQueue: "f", Error: "declined"})
		}
		ids := value(a.Add(ctx, all))(t)
		group := value(a.Get(ctx, ids[0]))(t).Group
		value(a.Discard(ctx, failed.Filter{IDs: ids[:10]}, "duplicates", "ann"))(t)
		value(a.Erase(ctx, failed.Filter{IDs: []failed.ID{ids[0], ids[1], ids[11]}}, "request 12", "ann"))(t)
		for _, f := range []failed.Filter{{IDs: ids[:1]}, {Group: group, Through: ids[2]}, {Queue: "q1"}, {All: true}} {
			counted := value(a.CountState(ctx, f, failed.Discarded))(t)
			if restored := value(a.Restore(ctx, f, "ann"))(t); counted != restored {
				t.Errorf("%+v: %d messages counted, %d restored", f, counted, restored)
			}
		}
		if n := value(a.CountState(ctx, failed.Filter{}, failed.Failed))(t); n != 9 {
			t.Errorf("got %d failed messages, want all 9 that are not erased", n)
		}
	})
}
