package proc

import (
	"context"
	"time"
)

const (
	idleFor   = 300 * time.Millisecond
	idleShare = 0.1 // of a processor
	idleTries = 200
)

// AwaitIdle waits until used, which returns seconds of processor time as [Busy] does,
// hardly grows any more: a broker that still collects garbage of its last round would
// slow down the next one. It reports false if that has not come within a minute.
func AwaitIdle(ctx context.Context, used func() (float64, error)) (bool, error) {
	for range idleTries {
		before, err := used()
		if err != nil {
			return false, err
		}
		select {
		case <-time.After(idleFor):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		after, err := used()
		if err != nil {
			return false, err
		}
		if after-before < idleShare*idleFor.Seconds() {
			return true, nil
		}
	}
	return false, nil
}
