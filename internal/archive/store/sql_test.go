package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// If the deadline of a caller passes while it waits for other writers, the caller receives ErrUnavailable.
func TestWaitingWriterReturnsAtDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &Archive{writing: make(chan struct{}, 1)}
		a.writing <- struct{}{} // another writer
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.write(ctx, nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "timed out after 3s") {
			t.Errorf("write with a deadline: got error %v, want ErrUnavailable", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := a.write(ctx, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("cancelled write: got error %v, want context.Canceled", err)
		}
	})
}
