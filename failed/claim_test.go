package failed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// A replay has one owner at a time, until the owner releases it, the lease expires, or the replay ends.
func TestAReplayHasOneOwner(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		now := time.UnixMilli(1_700_000_000_000)
		a := db.archive(t, func(c *failed.Config) { c.Clock = func() time.Time { return now } })
		if _, err := a.Ingest(t.Context(), []failed.Arrival{{Message: failed.Message{Queue: "orders"}}}); err != nil {
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
		check(t, a.EndReplay(t.Context(), r.ID, failed.ReplayStopped, "enough", "test"))
		if claim("one") {
			t.Error("a replay that has ended was claimed")
		}
	})
}

// A replay that is cancelled while it has an owner ends when the owner releases it. Until then the owner records the
// messages in flight as sent. After the lease has expired, any process can end the replay.
func TestAReplayIsCancelledWhenItIsLetGoOf(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		for _, dies := range []bool{false, true} {
			clock := newClock()
			a := db.archive(t, clock.use)
			x := failed.Arrival{Message: failed.Message{FailedQueue: "orders.failed"}}
			ids := value(a.Ingest(t.Context(), []failed.Arrival{x, x, x}))(t)
			r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test"))(t)
			if mine := value(a.Claim(t.Context(), r.ID, "one", time.Minute))(t); !mine {
				t.Fatal("it is not to be had")
			}
			cancel := func() error { return a.EndReplay(t.Context(), r.ID, failed.ReplayCancelled, "enough", "test") }
			look := func(state failed.ReplayState, replaying, replayed, waiting int64) {
				t.Helper()
				r := value(a.Replay(t.Context(), r.ID))(t)
				q := value(a.Queues(t.Context()))(t)[0].Counts
				if r.State != state || r.Why != "enough" || r.Ended.IsZero() != (state == failed.ReplayCancelling) || r.Sent != replayed ||
					q != (failed.Counts{Failed: waiting, Replaying: replaying, Replayed: replayed}) {
					t.Errorf("%+v, %+v", r, q)
				}
			}
			check(t, cancel())
			look(failed.ReplayCancelling, 3, 0, 0)
			if next := value(a.Next(t.Context(), r.ID, 1))(t); len(next) > 0 {
				t.Errorf("%d comes next", next[0].ID)
			}
			if err := cancel(); !errors.Is(err, failed.ErrState) {
				t.Errorf("cancelled once more: %v", err)
			}
			if value(a.Claim(t.Context(), r.ID, "other", time.Minute))(t) || !value(a.Claim(t.Context(), r.ID, "one", time.Minute))(t) {
				t.Error("it is another's")
			}
			if running := value(a.Running(t.Context()))(t); len(running) != 1 {
				t.Errorf("nobody sees that it is to be cancelled: %v", running)
			}
			check(t, a.Sent(t.Context(), r.ID, ids[:1]))
			if dies {
				clock.pass(time.Minute)
				check(t, cancel())
			} else {
				check(t, a.Release(t.Context(), r.ID, "other"))
				look(failed.ReplayCancelling, 2, 1, 0)
				check(t, a.Release(t.Context(), r.ID, "one"))
			}
			look(failed.ReplayCancelled, 0, 1, 2)
			if acts, _, err := a.Acts(t.Context(), failed.Page{}); err != nil || len(acts) != 2 || acts[0].Verb != "end replay" {
				t.Errorf("%+v, %v", acts, err)
			}
		}
	})
}

// A failed queue has one owner at a time, and the archive refuses messages from other processes.
func TestAFailedQueueHasOneOwner(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		a := db.archive(t, clock.use)
		claim := func(queue, owner string) bool { return value(a.ClaimQueue(t.Context(), queue, owner, time.Minute))(t) }
		add := func(owner string) error {
			_, err := a.Ingest(t.Context(), []failed.Arrival{{Message: failed.Message{FailedQueue: "orders.failed"}, Owner: owner}})
			return err
		}
		if err := add("one"); !errors.Is(err, failed.ErrState) {
			t.Errorf("added without a claim: %v", err)
		}
		if !claim("orders.failed", "one") || claim("orders.failed", "other") || !claim("mails.failed", "other") {
			t.Error("two have a queue, or nobody")
		}
		check(t, add("one"))
		check(t, add(""))
		if err := add("other"); !errors.Is(err, failed.ErrState) {
			t.Errorf("added by another: %v", err)
		}
		clock.pass(time.Minute)
		check(t, add("one")) // no other owner has taken the queue
		if !claim("orders.failed", "other") || claim("orders.failed", "one") {
			t.Error("the lease is over, and it is not the other's")
		}
		if err := add("one"); !errors.Is(err, failed.ErrState) {
			t.Errorf("added by one whose time is over: %v", err)
		}
		check(t, a.ReleaseQueue(t.Context(), "orders.failed", "one"))
		if claim("orders.failed", "one") {
			t.Error("somebody has let go of what is another's")
		}
		renew := func(owner string) bool {
			return value(a.RenewQueue(t.Context(), "orders.failed", owner, time.Minute))(t)
		}
		clock.pass(2 * time.Minute)
		if !renew("other") || claim("orders.failed", "one") {
			t.Error("what nobody else has taken cannot be kept")
		}
		check(t, a.ReleaseQueue(t.Context(), "orders.failed", "other"))
		if renew("one") {
			t.Error("what another has had meanwhile was kept")
		}
		if !claim("orders.failed", "one") {
			t.Error("it was let go of, and is not to be had")
		}
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 3 {
			t.Errorf("%d messages", n.N)
		}
	})
}
