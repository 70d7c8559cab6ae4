package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// An invalid cursor is an error and never an empty page, which would look like the end of the list.
func TestListsRejectInvalidCursors(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		value(a.Ingest(t.Context(), []failed.Arrived{
			{Message: failed.Message{FailedQueue: "a.failed"}},
			{Message: failed.Message{FailedQueue: "b.failed"}},
		}))(t)
		for range 2 {
			r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}}, "me"))(t)
			check(t, a.EndReplay(t.Context(), r.ID, failed.ReplayCancelled, "so", "me"))
		}
		// Each list, with the cursor of its next page.
		lists := map[string]func(string) (string, error){
			"messages": func(c string) (string, error) {
				_, next, err := a.List(t.Context(), failed.Filter{}, store.Page{After: c, Size: 1})
				return next, err
			},
			"messages of an unknown queue": func(c string) (string, error) {
				_, next, err := a.List(t.Context(), failed.Filter{Queue: "none"}, store.Page{After: c, Size: 1})
				return next, err
			},
			"groups": func(c string) (string, error) {
				_, next, err := a.Groups(t.Context(), store.GroupFilter{}, store.Page{After: c, Size: 1})
				return next, err
			},
			"groups, most failed first": func(c string) (string, error) {
				_, next, err := a.Groups(t.Context(), store.GroupFilter{MostFailed: true}, store.Page{After: c, Size: 1})
				return next, err
			},
			"acts": func(c string) (string, error) {
				_, next, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{After: c, Size: 1})
				return next, err
			},
			"replays": func(c string) (string, error) {
				_, next, err := a.Replays(t.Context(), store.Page{After: c, Size: 1})
				return next, err
			},
		}
		cursors := make(map[string]string)
		for name, list := range lists {
			next := value(list(""))(t)
			if next == "" && name != "messages of an unknown queue" {
				t.Errorf("%s: got no second page, want one", name)
			}
			cursors[name] = next
		}
		for name, list := range lists {
			bad := []string{"!", "zzz", "17", "-5", ".", "m", "1.2", "m1.2"}
			for of, c := range cursors {
				if c == "" {
					continue
				}
				bad = append(bad, c[:len(c)-1], c[1:], c+"0", string(strings.ToUpper(string(c))), c[:2]+"0"+c[2:])
				if of != name && !strings.HasPrefix(name, of+" of") { // cursors of other lists
					bad = append(bad, c)
				}
			}
			for _, c := range bad {
				if _, err := list(c); !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), "is not a cursor") {
					t.Errorf("%s after %q: %v", name, c, err)
				}
			}
			if c := cursors[name]; c != "" {
				if _, err := list(c); err != nil {
					t.Errorf("%s after %q: %v", name, c, err)
				}
			}
		}
	})
}
