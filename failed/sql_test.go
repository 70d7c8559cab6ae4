package failed

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever has less time than other writers take is told that the archive is not available.
func TestAWriterThatWaitsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &Archive{writing: make(chan struct{}, 1)}
		a.writing <- struct{}{} // another
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.write(ctx, nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "other changes have taken 3s") {
			t.Errorf("after a deadline: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := a.write(ctx, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("cancelled: %v", err)
		}
	})
}
