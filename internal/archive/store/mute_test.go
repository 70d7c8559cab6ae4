package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// addOne archives a message and returns its group.
func addOne(t *testing.T, a *store.Archive, queue, text string) failed.GroupID {
	t.Helper()
	now := a.Config().Clock()
	stored := value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{
		FailedQueue: queue + ".failed", Error: text, FirstFailed: now, LastFailed: now,
	}}}))(t)
	return value(a.Get(t.Context(), stored[0]))(t).Group
}

func TestMute(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		a := db.archive(t, clock.use)
		ctx := t.Context()
		id := addOne(t, a, "orders", "no such customer")
		muted := func() time.Time { t.Helper(); return value(a.Group(ctx, id))(t).Muted }
		if got := muted(); !got.IsZero() {
			t.Fatalf("new group is muted until %s", got)
		}
		check(t, a.Unmute(ctx, id, "test")) // no effect: the group is not muted
		if err := a.Mute(ctx, id, clock.now(), "test"); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("mute until now: got error %v, want ErrInvalid", err)
		}
		for _, err := range []error{a.Mute(ctx, id+1, store.MutedForever, "test"), a.Unmute(ctx, id+1, "test")} {
			if !errors.Is(err, failed.ErrNotFound) {
				t.Errorf("unknown group: got error %v, want ErrNotFound", err)
			}
		}
		if err := a.Mute(ctx, id, store.MutedForever, ""); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("mute without an actor: got error %v, want ErrInvalid", err)
		}
		until := clock.now().Add(time.Hour)
		check(t, a.Mute(ctx, id, until, "test"))
		g := value(a.Group(ctx, id))(t)
		if !g.Muted.Equal(until) || !g.MutedAt(clock.now()) || g.MutedAt(until) {
			t.Errorf("Muted: got %s, want %s", g.Muted, until)
		}
		check(t, a.Mute(ctx, id, store.MutedForever.Add(time.Hour), "test"))
		if got := muted(); !got.Equal(store.MutedForever) {
			t.Errorf("Muted: got %s, want MutedForever", got)
		}
		if recent := value(a.RecentGroups(ctx, 1))(t); len(recent) != 1 || recent[0].ID != id || !recent[0].Muted.Equal(store.MutedForever) {
			t.Errorf("got recent groups %+v, want group %d, muted forever", recent, id)
		}
		check(t, a.Unmute(ctx, id, "test"))
		if got := muted(); !got.IsZero() {
			t.Errorf("unmuted group is muted until %s", got)
		}
		acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
		check(t, err)
		var verbs []string
		for _, act := range acts {
			if act.Subject == "group/1" {
				verbs = append(verbs, act.Verb)
			}
		}
		if len(verbs) != 3 || verbs[0] != "unmute" || verbs[1] != "mute" || verbs[2] != "mute" {
			t.Errorf("got acts %q, want unmute, mute, mute", verbs)
		}
	})
}

// A new group is among the recent groups even if its failures are old.
func TestRecentGroups(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		a := db.archive(t, clock.use)
		addOne(t, a, "orders", "first")
		second := addOne(t, a, "orders", "second")
		clock.pass(-time.Hour)
		third := addOne(t, a, "orders", "third")
		recent := value(a.RecentGroups(t.Context(), 1))(t)
		if len(recent) != 2 || recent[0].ID != second || recent[1].ID != third || recent[1].Text != "third" || recent[1].Counts.Failed != 1 {
			t.Errorf("recent groups: got %+v, want groups %d (latest failure) and %d (newest)", recent, second, third)
		}
	})
}
