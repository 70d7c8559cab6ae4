package store_test

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Errors contain the prefix of the package exactly once, whether or not they contain the failed action.
func TestErrorsContainPackagePrefixOnce(t *testing.T) {
	a := openSQLite(t).archive(t)
	_, missing := a.Get(ctx, 17)
	_, invalid := a.Discard(ctx, failed.Filter{}, "why", "me")
	for _, err := range []error{
		failed.ErrNotFound, failed.ErrState, failed.ErrInvalid, missing, invalid, store.Config{}.Validate(),
	} {
		if text := err.Error(); !strings.HasPrefix(text, "failed: ") || strings.Count(text, "failed: ") != 1 {
			t.Errorf("error %q does not contain the prefix exactly once", text)
		}
	}
}
