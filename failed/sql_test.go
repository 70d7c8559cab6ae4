package failed

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A caller whose deadline is earlier than the end of other writers gets ErrUnavailable.
func TestAWriterThatWaitsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &Archive{writing: make(chan struct{}, 1)}
		a.writing <- struct{}{} // another writer
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
