package store_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Only one of the programs that share an archive can claim a key. After 30 days, the key can be claimed again.
func TestClaimSubmissionReservesAKeyOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		table := prefix(db.next())
		one, two := db.open(t, table, clock.use), db.open(t, table, clock.use)
		var claimed atomic.Int64
		var all sync.WaitGroup
		for _, a := range []*store.Archive{one, two, one, two} {
			all.Go(func() {
				switch err := a.ClaimSubmission(ctx, "key"); {
				case err == nil:
					claimed.Add(1)
				case !errors.Is(err, failed.ErrState):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := claimed.Load(); n != 1 {
			t.Errorf("key was claimed %d times, want 1", n)
		}
		check(t, two.ClaimSubmission(ctx, "other key"))
		clock.pass(29 * 24 * time.Hour)
		if err := two.ClaimSubmission(ctx, "key"); !errors.Is(err, failed.ErrState) {
			t.Errorf("claim after 29 days: got error %v, want ErrState", err)
		}
		clock.pass(2 * 24 * time.Hour)
		check(t, two.ClaimSubmission(ctx, "key"))
		for _, key := range []string{"", strings.Repeat("k", 101)} {
			if err := one.ClaimSubmission(ctx, key); !errors.Is(err, failed.ErrInvalid) {
				t.Errorf("key of %d bytes: got error %v, want ErrInvalid", len(key), err)
			}
		}
	})
}
