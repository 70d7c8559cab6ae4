package store_test

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Errors have no prefix, because the console and the commands show their texts. Package archive adds its prefix.
func TestErrorsHaveNoPackagePrefix(t *testing.T) {
	a := openSQLite(t).archive(t)
	_, missing := a.Get(ctx, 17)
	_, invalid := a.Discard(ctx, failed.Filter{}, "why", "me")
	for _, err := range []error{
		failed.ErrNotFound, failed.ErrState, failed.ErrInvalid, missing, invalid, store.Config{Redact: []failed.Rule{{}}}.Validate(),
	} {
		if text := err.Error(); strings.HasPrefix(text, "failed: ") || strings.HasPrefix(text, "store: ") || strings.HasPrefix(text, "invalid: ") {
			t.Errorf("error %q has a prefix", text)
		}
	}
}
