package failed_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// A replay has one owner at a time, until that one lets go of it, is not heard of for
// the lease, or the replay ends.
func TestAReplayHasOneOwner(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		now := time.UnixMilli(1_700_000_000_000)
		a := db.archive(t, func(c *failed.Config) { c.Clock = func() time.Time { return now } })
		if _, err := a.Add(t.Context(), []failed.Arrival{{Message: failed.Message{Queue: "orders"}}}); err != nil {
			t.Fatal(err)
		}
		r, err := a.BeginReplay(t.Context(), failed.Plan{}, "test")
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			owner string
			after time.Duration
			want  bool
		}{
			{"one", 0, true},
			{"other", 0, false},
			{"one", 9 * time.Second, true}, // and for ten more
			{"other", 9999 * time.Millisecond, false},
			{"other", time.Millisecond, true},
			{"one", time.Second, false},
		} {
			now = now.Add(step.after)
			got, err := a.Claim(t.Context(), r.ID, step.owner, 10*time.Second)
			if err != nil || got != step.want {
				t.Errorf("step %d: %t, %v", i, got, err)
			}
		}
		claim := func(owner string) bool {
			got, err := a.Claim(t.Context(), r.ID, owner, time.Minute)
			if err != nil {
				t.Error(err)
			}
			return got
		}
		for _, owner := range []string{"one", "other"} {
			if err := a.Release(t.Context(), r.ID, owner); err != nil {
				t.Fatal(err)
			}
			if got := claim("one"); got != (owner == "other") {
				t.Errorf("after %s let go of it: %t", owner, got)
			}
		}
		if err := a.EndReplay(t.Context(), r.ID, failed.ReplayCancelled, "enough", "test"); err != nil {
			t.Fatal(err)
		}
		if claim("one") {
			t.Error("a replay that has ended was claimed")
		}
	})
}
