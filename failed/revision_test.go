package failed_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/failed"
)

// Each revision is what the list of all has of it, the one that was taken back among them.
func TestRevision(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		id := value(a.Add(ctx, []failed.Arrival{{Message: failed.Message{FailedQueue: "orders.failed", Content: failed.Content{Body: []byte("0")}}}}))(t)[0]
		for seen, body := range []string{"1", ""} {
			check(t, a.Edit(ctx, id, seen, failed.Content{Body: []byte(body)}, "me"))
		}
		check(t, a.Revert(ctx, id, 2, "me"))
		all := value(a.Edits(ctx, id))(t)
		if len(all) != 2 {
			t.Fatalf("%d edits", len(all))
		}
		for i, edit := range all {
			want := &failed.Revision{Edit: edit, Content: failed.Content{Body: []byte([]string{"1", ""}[i])}}
			if d := cmp.Diff(want, value(a.Revision(ctx, id, edit.Number))(t), same); d != "" {
				t.Error(d)
			}
		}
		for _, number := range []int{0, 3} {
			if _, err := a.Revision(ctx, id, number); !errors.Is(err, failed.ErrNotFound) {
				t.Errorf("revision %d: %v", number, err)
			}
		}
		if _, err := a.Revision(ctx, id+1, 1); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("of no message: %v", err)
		}
	})
}

// Of two who edit one message, the second learns of the first, and changes nothing. So does
// whoever takes an edit back that they have not seen.
func TestTwoEditOneMessage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		id := value(a.Add(ctx, []failed.Arrival{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)[0]
		seen := value(a.Get(ctx, id))(t).Revision
		check(t, a.Edit(ctx, id, seen, failed.Content{Body: []byte("ann's")}, "ann"))
		if err := a.Edit(ctx, id, seen, failed.Content{Body: []byte("ben's")}, "ben"); !errors.Is(err, failed.ErrState) {
			t.Errorf("ben edits what he has not seen: %v", err)
		}
		if err := a.Revert(ctx, id, seen, "ben"); !errors.Is(err, failed.ErrState) {
			t.Errorf("ben takes back what he has not seen: %v", err)
		}
		m := value(a.Get(ctx, id))(t)
		if string(m.Current().Body) != "ann's" || m.Revision != 1 {
			t.Errorf("it is %q at revision %d", m.Current().Body, m.Revision)
		}
		check(t, a.Edit(ctx, id, m.Revision, failed.Content{Body: []byte("both")}, "ben"))
		check(t, a.Revert(ctx, id, 2, "ann"))
		if m := value(a.Get(ctx, id))(t); m.Revision != 0 || m.Edited != nil {
			t.Errorf("reverted it is at revision %d", m.Revision)
		}
	})
}
