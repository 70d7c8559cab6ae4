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
		pause time.Duration
	}{
		{"nil", nil, succeeded, 0, 0},
		{"plain", plain, failed, 0, 0},
		{"retry after", RetryAfter(time.Minute, plain), later, time.Minute, 0},
		{"wrapped", fmt.Errorf("%w", fmt.Errorf("%w", RetryAfter(time.Minute, nil))), later, time.Minute, 0},
		{"park", Park(plain), hopeless, 0, 0},
		{"the outermost counts", RetryAfter(time.Minute, Park(plain)), later, time.Minute, 0},
		{"and so it does here", Park(RetryAfter(time.Minute, plain)), hopeless, 0, 0},
		{"joined", errors.Join(plain, RetryAfter(time.Minute, nil), RetryAfter(time.Hour, nil)), later, time.Hour, 0},
		{"joined with park", fmt.Errorf("%w, %w", RetryAfter(time.Minute, nil), Park(nil)), hopeless, 0, 0},
		{"panic with an outcome", &PanicError{Value: Park(plain)}, hopeless, 0, 0},
		{"pause", PauseFor(time.Minute, plain), later, time.Minute, time.Minute},
		{"the longest delay and the longest pause", errors.Join(PauseFor(time.Minute, nil), RetryAfter(time.Hour, nil)), later, time.Hour, time.Minute},
		{"annotated", Annotate(Park(plain), map[string]any{"k": 1}), hopeless, 0, 0},
		{"made by hand", &RetryAfterError{Delay: -1}, later, 0, 0},
	} {
		if got, want := classify(tc.err), (verdict{tc.want, tc.delay, tc.pause}); got != want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, want)
		}
	}
}
