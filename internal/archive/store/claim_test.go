package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// A replay has one owner at a time, until the owner releases it, the lease expires, or the replay ends.
func TestReplayHasOneOwner(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		now := time.UnixMilli(1_700_000_000_000)
		a := db.archive(t, func(c *store.Config) { c.Clock = func() time.Time { return now } })
		if _, err := a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{Queue: "orders"}}}); err != nil {
			t.Fatal(err)
		}
		r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test")
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
			{"one", 9 * time.Second, true}, // extends the lease by ten seconds
			{"other", 9999 * time.Millisecond, false},
			{"other", time.Millisecond, true},
			{"one", time.Second, false},
		} {
			now = now.Add(step.after)
			got, err := a.ClaimReplay(t.Context(), r.ID, step.owner, 10*time.Second)
			if err != nil || got != step.want {
				t.Errorf("step %d: got %t, %v, want %t", i, got, err, step.want)
			}
		}
		claim := func(owner string) bool {
			got, err := a.ClaimReplay(t.Context(), r.ID, owner, time.Minute)
			if err != nil {
				t.Error(err)
			}
			return got
		}
		for _, owner := range []string{"one", "other"} {
			if err := a.ReleaseReplay(t.Context(), r.ID, owner); err != nil {
				t.Fatal(err)
			}
			if got := claim("one"); got != (owner == "other") {
				t.Errorf("claim after the release by %s: got %t, want %t", owner, got, owner == "other")
			}
		}
		check(t, a.EndReplay(t.Context(), r.ID, failed.ReplayStopped, "enough", "test"))
		if claim("one") {
			t.Error("ended replay was claimed")
		}
	})
}

// A replay that is cancelled while it has an owner ends when the owner releases it. Until then the owner can record
// messages in flight as sent. After the lease has expired, any process can end the replay.
func TestCancelledReplayEndsWhenReleased(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		for _, expired := range []bool{false, true} {
			clock := newClock()
			a := db.archive(t, clock.use)
			x := failed.Arrived{Message: failed.Message{FailedQueue: "orders.failed"}}
			ids := value(a.Ingest(t.Context(), []failed.Arrived{x, x, x}))(t)
			r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test"))(t)
			if mine := value(a.ClaimReplay(t.Context(), r.ID, "one", time.Minute))(t); !mine {
				t.Fatal("cannot claim the replay")
			}
			cancel := func() error { return a.EndReplay(t.Context(), r.ID, failed.ReplayCancelled, "enough", "test") }
			look := func(state failed.ReplayState, replaying, replayed, waiting int64) {
				t.Helper()
				r := value(a.Replay(t.Context(), r.ID))(t)
				q := value(a.Queues(t.Context()))(t)[0].Counts
				if r.State != state || r.Why != "enough" || r.Ended.IsZero() != (state == failed.ReplayCancelling) || r.Sent != replayed ||
					q != (store.Counts{Failed: waiting, Replaying: replaying, Replayed: replayed}) {
					t.Errorf("got replay %+v and counts %+v, want state %s, %d sent", r, q, state, replayed)
				}
			}
			check(t, cancel())
			look(failed.ReplayCancelling, 3, 0, 0)
			if next := value(a.UnsentOf(t.Context(), r.ID, 1))(t); len(next) > 0 {
				t.Errorf("cancelled replay still sends message %d", next[0].ID)
			}
			if err := cancel(); !errors.Is(err, failed.ErrState) {
				t.Errorf("second cancellation: got error %v, want ErrState", err)
			}
			if value(a.ClaimReplay(t.Context(), r.ID, "other", time.Minute))(t) || !value(a.ClaimReplay(t.Context(), r.ID, "one", time.Minute))(t) {
				t.Error("replay has the wrong owner")
			}
			if running := value(a.Running(t.Context()))(t); len(running) != 1 {
				t.Errorf("running replays: got %v, want the cancelled replay", running)
			}
			check(t, a.Sent(t.Context(), r.ID, ids[:1]))
			if expired {
				clock.pass(time.Minute)
				check(t, cancel())
			} else {
				check(t, a.ReleaseReplay(t.Context(), r.ID, "other"))
				look(failed.ReplayCancelling, 2, 1, 0)
				check(t, a.ReleaseReplay(t.Context(), r.ID, "one"))
			}
			look(failed.ReplayCancelled, 0, 1, 2)
			if acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{}); err != nil || len(acts) != 2 || acts[0].Verb != "end replay" {
				t.Errorf("got acts %+v, %v, want 2 acts, the first \"end replay\"", acts, err)
			}
		}
	})
}

// A process whose clock was a day ahead exits. Its leases do not stop the others until the next day.
func TestLeaseOfWrongClock(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		a := db.archive(t, clock.use)
		value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)
		r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test"))(t)
		claim := func(owner string, lease time.Duration) [2]bool {
			return [2]bool{value(a.ClaimQueue(t.Context(), "orders.failed", owner, lease))(t), value(a.ClaimReplay(t.Context(), r.ID, owner, lease))(t)}
		}
		clock.pass(24 * time.Hour)
		if got := claim("wrong", time.Minute); got != [2]bool{true, true} {
			t.Fatalf("claim with the wrong clock: got %v, want both", got)
		}
		clock.pass(-24 * time.Hour)
		if got := claim("other", time.Minute); got != [2]bool{true, true} {
			t.Errorf("claim of a lease that ends tomorrow: got %v, want both", got)
		}
		if got := claim("short", 10*time.Second); got != [2]bool{} {
			t.Errorf("claim of a longer lease: got %v, want none", got)
		}
	})
}

// A failed queue has one owner at a time, and the archive refuses messages from other owners.
func TestFailedQueueHasOneOwner(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		a := db.archive(t, clock.use)
		claim := func(queue, owner string) bool { return value(a.ClaimQueue(t.Context(), queue, owner, time.Minute))(t) }
		add := func(owner string) error {
			_, err := a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}, Owner: owner}})
			return err
		}
		if err := add("one"); !errors.Is(err, failed.ErrState) {
			t.Errorf("ingest without a claim: got error %v, want ErrState", err)
		}
		if !claim("orders.failed", "one") || claim("orders.failed", "other") || !claim("mails.failed", "other") {
			t.Error("queue does not have exactly one owner")
		}
		check(t, add("one"))
		check(t, add(""))
		if err := add("other"); !errors.Is(err, failed.ErrState) {
			t.Errorf("ingest by another process: got error %v, want ErrState", err)
		}
		clock.pass(time.Minute)
		check(t, add("one")) // no other owner has taken the queue
		if !claim("orders.failed", "other") || claim("orders.failed", "one") {
			t.Error("queue has the wrong owner after the lease expired")
		}
		if err := add("one"); !errors.Is(err, failed.ErrState) {
			t.Errorf("ingest by the former owner: got error %v, want ErrState", err)
		}
		check(t, a.ReleaseQueue(t.Context(), "orders.failed", "one"))
		if claim("orders.failed", "one") {
			t.Error("former owner released the lease of the new owner")
		}
		renew := func(owner string) bool {
			return value(a.RenewQueue(t.Context(), "orders.failed", owner, time.Minute))(t)
		}
		clock.pass(2 * time.Minute)
		if !renew("other") || claim("orders.failed", "one") {
			t.Error("owner cannot renew an expired lease that no other process took")
		}
		check(t, a.ReleaseQueue(t.Context(), "orders.failed", "other"))
		if renew("one") {
			t.Error("former owner renewed a lease that another process had taken")
		}
		if !claim("orders.failed", "one") {
			t.Error("cannot claim the released queue")
		}
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 3 {
			t.Errorf("got %d messages, want 3", n.N)
		}
	})
}
