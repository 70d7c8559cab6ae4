package reprise

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	plain := errors.New("plain")
	for _, tc := range []struct {
		name  string
		err   error
		want  outcome
		delay time.Duration
	}{
		{"nil", nil, succeeded, 0},
		{"plain", plain, failed, 0},
		{"retry after", RetryAfter(time.Minute, plain), later, time.Minute},
		{"wrapped", fmt.Errorf("%w", fmt.Errorf("%w", RetryAfter(time.Minute, nil))), later, time.Minute},
		{"park", Park(plain), hopeless, 0},
		{"the outermost counts", RetryAfter(time.Minute, Park(plain)), later, time.Minute},
		{"and so it does here", Park(RetryAfter(time.Minute, plain)), hopeless, 0},
		{"joined", errors.Join(plain, RetryAfter(time.Minute, nil), RetryAfter(time.Hour, nil)), later, time.Hour},
		{"joined with park", fmt.Errorf("%w, %w", RetryAfter(time.Minute, nil), Park(nil)), hopeless, 0},
		{"panic with an outcome", &PanicError{Value: Park(plain)}, hopeless, 0},
		{"made by hand", &RetryAfterError{Delay: -1}, later, 0},
	} {
		if got, delay := classify(tc.err); got != tc.want || delay != tc.delay {
			t.Errorf("%s: got %d after %s, want %d after %s", tc.name, got, delay, tc.want, tc.delay)
		}
	}
}
