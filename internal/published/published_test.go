package published_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/published"
)

func TestResultOfErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{&reprise.UnroutableError{Code: 312}, "unroutable"},
		{fmt.Errorf("order 17: %w", &reprise.UnroutableError{Code: 404}), "unroutable"},
		{reprise.ErrNacked, "nacked"},
		{fmt.Errorf("%w within 30s", reprise.ErrUnconfirmed), "unconfirmed"},
		{fmt.Errorf("%w: %w", reprise.ErrUnconfirmed, context.Canceled), "unconfirmed"},
		{errors.Join(reprise.ErrUnconfirmed, &reprise.BlockedError{Reason: "low on memory"}), "unconfirmed"},
		{&reprise.RefusedError{Code: 403}, "refused"},
		{&reprise.TooLargeError{Size: 2, Limit: 1}, "too_large"},
		{&reprise.BlockedError{}, "blocked"},
		{fmt.Errorf("%w (not sent within 30s)", reprise.ErrStalled), "stalled"},
		{fmt.Errorf("%w: connection refused", reprise.ErrDisconnected), "disconnected"},
		{reprise.ErrInvalidMessage, "invalid"},
		{&reprise.BatchError{Messages: 2, Failed: []*reprise.MessageError{{Err: reprise.ErrNacked}}}, "nacked"},
		{reprise.ErrClosed, "other"},
		{context.DeadlineExceeded, "other"},
		{errors.New("something else"), "other"},
	} {
		got := published.Result(tc.err)
		if got != tc.want {
			t.Errorf("Result(%v): got %s, want %s", tc.err, got, tc.want)
		}
		if !slices.Contains(published.Results(), got) {
			t.Errorf("Results does not contain %s: %q", got, published.Results())
		}
	}
}
