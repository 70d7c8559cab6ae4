package reprise

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

func TestRetrierForgetsFailuresAfterASteadyTime(t *testing.T) {
	r := retrier{schedule: backoff.Exponential{Initial: time.Second}}
	for i, step := range []struct{ lasted, want time.Duration }{
		{0, time.Second}, {0, 2 * time.Second}, {steady - 1, 4 * time.Second}, {steady, time.Second}, {0, 2 * time.Second},
	} {
		if got := r.failed(step.lasted); got != step.want {
			t.Errorf("failure %d: next in %s, want %s", i+1, got, step.want)
		}
	}
}
