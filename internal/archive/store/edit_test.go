package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// Revision returns the same revisions as Edits, including reverted revisions.
func TestRevision(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		id := value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed", Content: failed.Content{Body: []byte("0")}}}}))(t)[0]
		for seen, body := range []string{"1", ""} {
			check(t, a.Edit(ctx, id, seen, failed.Content{Body: []byte(body)}, "me"))
		}
		check(t, a.Revert(ctx, id, 2, "me"))
		all := value(a.Edits(ctx, id))(t)
		if len(all) != 2 {
			t.Fatalf("got %d edits, want 2", len(all))
		}
		for i, edit := range all {
			edit.Content = failed.Content{Body: []byte([]string{"1", ""}[i])}
			if d := cmp.Diff(&edit, value(a.Revision(ctx, id, edit.Number))(t), same); d != "" {
				t.Error(d)
			}
		}
		for _, number := range []int{0, 3} {
			if _, err := a.Revision(ctx, id, number); !errors.Is(err, failed.ErrNotFound) {
				t.Errorf("revision %d: got error %v, want ErrNotFound", number, err)
			}
		}
		if _, err := a.Revision(ctx, id+1, 1); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("unknown message: got error %v, want ErrNotFound", err)
		}
	})
}

// If two users edit a message, the second edit returns an error and changes nothing. The same applies if the second
// user reverts the edit of the first.
func TestEditRefusesStaleRevision(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		id := value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)[0]
		seen := value(a.Get(ctx, id))(t).Revision
		check(t, a.Edit(ctx, id, seen, failed.Content{Body: []byte("ann's")}, "ann"))
		if err := a.Edit(ctx, id, seen, failed.Content{Body: []byte("ben's")}, "ben"); !errors.Is(err, failed.ErrState) {
			t.Errorf("stale edit: got error %v, want ErrState", err)
		}
		if err := a.Revert(ctx, id, seen, "ben"); !errors.Is(err, failed.ErrState) {
			t.Errorf("stale revert: got error %v, want ErrState", err)
		}
		m := value(a.Get(ctx, id))(t)
		if string(m.Current().Body) != "ann's" || m.Revision != 1 {
			t.Errorf("got body %q at revision %d, want \"ann's\" at revision 1", m.Current().Body, m.Revision)
		}
		check(t, a.Edit(ctx, id, m.Revision, failed.Content{Body: []byte("both")}, "ben"))
		check(t, a.Revert(ctx, id, 2, "ann"))
		if m := value(a.Get(ctx, id))(t); m.Revision != 0 || m.Edited != nil {
			t.Errorf("after the revert: got revision %d, want 0", m.Revision)
		}
	})
}

// An edit without a change is not recorded, so that a user can save a form unchanged without leaving a trace. An edit
// that restores the original counts as a revert.
func TestEditWithoutChangeIsNotRecorded(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		original := failed.Content{Body: []byte("0"), Headers: topology.Table{"n": int32(1)}}
		id := value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed", Content: original}}}))(t)[0]
		other := failed.Content{Body: []byte("0"), Headers: topology.Table{"n": int64(1)}}
		for _, step := range []struct {
			seen     int
			content  failed.Content
			revision int
			edits    int
		}{
			{0, original, 0, 0},
			{0, other, 1, 1},
			{1, other, 1, 1},
			{1, original, 0, 1},
			{0, other, 2, 2},
		} {
			check(t, a.Edit(ctx, id, step.seen, step.content, "me"))
			if m, n := value(a.Get(ctx, id))(t), len(value(a.Edits(ctx, id))(t)); m.Revision != step.revision || n != step.edits {
				t.Errorf("%+v: got revision %d of %d, want %d of %d", step, m.Revision, n, step.revision, step.edits)
			}
		}
		if err := a.Edit(ctx, id, 1, other, "me"); !errors.Is(err, failed.ErrState) {
			t.Errorf("stale edit: got error %v, want ErrState", err)
		}
	})
}

// The replay that EditAndReplay begins sends the edited content. If another user has edited the message first,
// EditAndReplay does nothing.
func TestEditAndReplay(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		id := value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)[0]
		ann, ben := failed.Content{Body: []byte("ann's")}, failed.Content{Body: []byte("ben's")}
		check(t, a.Edit(ctx, id, 0, ann, "ann"))

		_, err := a.EditAndReplay(ctx, id, 0, ben, failed.Plan{}, "ben")
		if m := value(a.Get(ctx, id))(t); !errors.Is(err, failed.ErrState) || m.State != failed.Failed || m.Revision != 1 {
			t.Fatalf("stale edit: got error %v, want ErrState; message is %s at revision %d", err, m.State, m.Revision)
		}
		if _, err := a.EditAndReplay(ctx, id, 1, ben, failed.Plan{Rate: -1}, "ben"); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("invalid plan: got error %v, want ErrInvalid", err)
		}
		if m := value(a.Get(ctx, id))(t); m.Revision != 1 {
			t.Fatal("message was edited although the plan is invalid")
		}
		if _, err := a.EditAndReplay(ctx, id+1, 0, ben, failed.Plan{}, "ben"); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("unknown message: got error %v, want ErrNotFound", err)
		}

		to := &failed.Target{RoutingKey: "by-hand"}
		r := value(a.EditAndReplay(ctx, id, 1, ben, failed.Plan{To: to, Filter: failed.Filter{All: true}}, "ben"))(t)
		if r.Total != 1 || r.Plan.To == nil || len(r.Plan.Filter.IDs) != 1 {
			t.Errorf("got replay %+v, want one message, selected by ID, with a target", r)
		}
		next := value(a.UnsentOf(ctx, r.ID, 10))(t)
		if len(next) != 1 || string(next[0].Current().Body) != "ben's" {
			t.Errorf("got %d unsent messages, want the edited message", len(next))
		}
		if _, err := a.EditAndReplay(ctx, id, 2, ann, failed.Plan{}, "ann"); !errors.Is(err, failed.ErrState) {
			t.Errorf("edit during a replay: got error %v, want ErrState", err)
		}
		acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
		check(t, err)
		if len(acts) != 3 || acts[0].Verb != "replay" || acts[1].Verb != "edit" || acts[1].Actor != "ben" {
			t.Errorf("got acts %+v, want 3 acts, the last an edit by ben and its replay", acts)
		}
	})
}
