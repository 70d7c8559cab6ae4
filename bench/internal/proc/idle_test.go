package proc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// busyFor returns a function that returns a processor time. This time grows until the duration d has passed.
func busyFor(d time.Duration) func() (float64, error) {
	began := time.Now()
	return func() (float64, error) { return min(time.Since(began), d).Seconds(), nil }
}

func TestAwaitIdleWaitsUntilIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		idle, err := proc.AwaitIdle(t.Context(), busyFor(5*time.Second))
		if took := time.Since(began); !idle || err != nil || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("AwaitIdle: got %v, %v after %v, want true after 5s to 6s", idle, err, took)
		}
	})
}

func TestAwaitIdleReturnsFalseAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		idle, err := proc.AwaitIdle(t.Context(), busyFor(time.Hour))
		if took := time.Since(began); idle || err != nil || took != time.Minute {
			t.Errorf("AwaitIdle: got %v, %v after %v, want false after 1m", idle, err, took)
		}
	})
}
