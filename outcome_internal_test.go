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
		{"retry after", RetryAfter(time.Minute, plain), postponed, time.Minute, 0},
		{"wrapped", fmt.Errorf("%w", fmt.Errorf("%w", RetryAfter(time.Minute, nil))), postponed, time.Minute, 0},
		{"park", Park(plain), unretryable, 0, 0},
		{"outermost is retry after", RetryAfter(time.Minute, Park(plain)), postponed, time.Minute, 0},
		{"outermost is park", Park(RetryAfter(time.Minute, plain)), unretryable, 0, 0},
		{"joined", errors.Join(plain, RetryAfter(time.Minute, nil), RetryAfter(time.Hour, nil)), postponed, time.Hour, 0},
		{"joined with park", fmt.Errorf("%w, %w", RetryAfter(time.Minute, nil), Park(nil)), unretryable, 0, 0},
		{"panic with an outcome", &PanicError{Value: Park(plain)}, unretryable, 0, 0},
		{"pause", PauseFor(time.Minute, plain), postponed, time.Minute, time.Minute},
		{"longest delay and longest pause", errors.Join(PauseFor(time.Minute, nil), RetryAfter(time.Hour, nil)), postponed, time.Hour, time.Minute},
		{"annotated", Annotate(Park(plain), map[string]any{"k": 1}), unretryable, 0, 0},
		{"negative delay in a literal", &RetryAfterError{Delay: -1}, postponed, 0, 0},
	} {
		if got, want := classify(tc.err), (verdict{outcome: tc.want, delay: tc.delay, pause: tc.pause}); got != want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, want)
		}
	}
}
