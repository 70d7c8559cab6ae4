package reprise

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

func TestBlockedConnectionIsNotWritable(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &conn{writable: open}
	writable := func() bool {
		select {
		case <-c.mayWrite():
			return true
		default:
			return false
		}
	}
	for _, step := range []struct{ blocked, want bool }{
		{false, true}, {true, false}, {true, false}, {false, true}, {false, true}, {true, false},
	} {
		c.block(step.blocked)
		if got := writable(); got != step.want {
			t.Fatalf("after blocked %t: writable %t", step.blocked, got)
		}
	}
	waiting := c.mayWrite()
	c.block(false)
	<-waiting
}

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
