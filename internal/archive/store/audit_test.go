package store_test

import (
	"fmt"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// A search in the audit log reads a limited part of the log for each page, and finds all matches.
func TestActSearchIsDividedIntoPages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		ctx := t.Context()
		check(t, a.Record(ctx, "anna", "first", "", nil))
		db.exec(t, fmt.Sprintf(`INSERT INTO %[1]sact (id, at, actor, verb, subject, details)
			SELECT g + 1, 0, (SELECT actor FROM %[1]sact WHERE id = 1), 'other', '', '{}' FROM %[2]s`, a.Config().Prefix, db.numbers(6000)))
		var found []int64
		pages := 0
		for page := (store.Page{Size: 3}); ; pages++ {
			acts, next, err := a.Acts(ctx, store.ActFilter{Actor: "ANNA", Text: "first"}, page)
			check(t, err)
			for _, act := range acts {
				found = append(found, act.ID)
			}
			if page.After = next; next == "" {
				break
			}
		}
		if len(found) != 1 || found[0] != 1 || pages != 1 {
			t.Errorf("got acts %v after %d more pages, want act 1 on the second page", found, pages)
		}
	})
}
