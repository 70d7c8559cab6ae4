package retry_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/retry"
)

func TestRetrierResetsAfterSteadyTime(t *testing.T) {
	r := retry.Retrier{Schedule: backoff.Exponential{Initial: time.Second}}
	for i, step := range []struct{ lasted, want time.Duration }{
		{0, time.Second},
		{0, 2 * time.Second},
		{retry.Steady - 1, 4 * time.Second},
		{retry.Steady, time.Second},
		{0, 2 * time.Second},
	} {
		if got := r.Failed(step.lasted); got != step.want {
			t.Errorf("delay after failure %d: got %s, want %s", i+1, got, step.want)
		}
	}
}
