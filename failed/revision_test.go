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
		for _, body := range []string{"1", ""} {
			check(t, a.Edit(ctx, id, failed.Content{Body: []byte(body)}, "me"))
		}
		check(t, a.Revert(ctx, id, "me"))
		all := value(a.Revisions(ctx, id))(t)
		if len(all) != 2 {
			t.Fatalf("%d revisions", len(all))
		}
		for _, want := range all {
			if d := cmp.Diff(&want, value(a.Revision(ctx, id, want.Number))(t)); d != "" {
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
