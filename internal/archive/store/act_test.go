package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Restore with the act of a discard restores only the messages that this act discarded, and no message that a later
// act changed again.
func TestRestoreUndoesOneAct(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		a := db.archive(t, func(c *store.Config) { c.Clock = func() time.Time { clock = clock.Add(time.Minute); return clock } })
		var messages []failed.Message
		for range 40 {
			messages = append(messages, failed.Message{Queue: "q", FailedQueue: "q.failed", Error: "declined"})
		}
		ids := value(a.Add(ctx, messages))(t)
		value(a.Discard(ctx, failed.Filter{IDs: ids[:12]}, "duplicates", "bob"))(t)
		value(a.Discard(ctx, failed.Filter{Queue: "q"}, "Test orders", "ann"))(t)
		value(a.Restore(ctx, failed.Filter{IDs: ids[39:]}, "bob"))(t)
		value(a.Discard(ctx, failed.Filter{IDs: ids[39:]}, "wrong address", "bob"))(t)

		find := func(f store.ActFilter) (found []string) {
			acts, _, err := a.Acts(ctx, f, store.Page{})
			check(t, err)
			for _, act := range acts {
				found = append(found, fmt.Sprint(act.ID, " ", act.Verb, " ", act.Actor))
			}
			return found
		}
		for _, c := range []struct {
			f    store.ActFilter
			want string
		}{
			{store.ActFilter{}, "[4 discard bob 3 restore bob 2 discard ann 1 discard bob]"},
			{store.ActFilter{Actor: "Ann"}, "[2 discard ann]"},
			{store.ActFilter{Text: "test orders"}, "[2 discard ann]"},
			{store.ActFilter{Actor: "bob", Text: "discard"}, "[4 discard bob 1 discard bob]"},
			{store.ActFilter{Message: ids[39]}, "[4 discard bob 3 restore bob 2 discard ann]"},
			{store.ActFilter{Actor: "nobody"}, "[]"},
		} {
			if got := fmt.Sprint(find(c.f)); got != c.want {
				t.Errorf("acts %+v: got %s, want %s", c.f, got, c.want)
			}
		}
		acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
		check(t, err)
		since := store.ActFilter{Since: acts[2].Time, Until: acts[0].Time}
		if got := fmt.Sprint(find(since)); got != "[3 restore bob 2 discard ann]" {
			t.Errorf("acts by time: got %s, want acts 3 and 2", got)
		}

		of := failed.Filter{Act: acts[2].ID}
		if n := value(a.CountState(ctx, of, failed.Discarded))(t); n != 27 {
			t.Errorf("got %d discarded messages of the act, want 27", n)
		}
		if list, _, err := a.List(ctx, of, store.Page{}); err != nil || len(list) != 27 {
			t.Errorf("got %d listed messages of the act, %v, want 27", len(list), err)
		}
		if n := value(a.Restore(ctx, of, "ann"))(t); n != 27 {
			t.Errorf("restored %d messages, want the 27 that only this act discarded", n)
		}
		for i, id := range ids {
			want := failed.Failed
			if i < 12 || i == 39 {
				want = failed.Discarded
			}
			if m := value(a.Get(ctx, id))(t); m.State != want {
				t.Errorf("message %d: got state %s, want %s", id, m.State, want)
			}
		}
		if n := value(a.Restore(ctx, of, "ann"))(t); n != 0 {
			t.Errorf("restored %d messages again, want 0", n)
		}
	})
}
