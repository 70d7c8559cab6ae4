package migrate_test

import (
	"fmt"
	"testing"

	"github.com/reprisemq/reprise/internal/migrate"
)

// A migration that keeps the name moves messages and bindings.
func TestKeepsName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		f.bound(t, "shop", "orders", "new", "paid")
		f.publish(t, "shop", "new", "a", 600)
		result, err := f.migrate(t.Context(), t, f.url, f.api, migrate.Change{Queue: "orders", Set: quorum})
		if err != nil {
			t.Fatal(err)
		}
		if result.Moved != 1200 || result.Duplicates != 0 {
			t.Errorf("got %+v", result)
		}
		if args := f.arguments(t, "orders"); args["x-queue-type"] != "quorum" {
			t.Errorf("got arguments %v", args)
		}
		f.publish(t, "shop", "paid", "b", 1)
		all := f.bodies(t, "orders")
		if len(all) != 601 || all[600] != "b-0" {
			t.Fatalf("got %d messages", len(all))
		}
		for i := range 600 {
			if all[i] != fmt.Sprintf("a-%d", i) {
				t.Fatalf("message %d is %s", i, all[i])
			}
		}
		f.clean(t, "orders")
	})
}
