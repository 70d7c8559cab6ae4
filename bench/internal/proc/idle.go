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

// AwaitIdle waits until the processor time that used returns stops growing; see [Busy]. A broker that still collects garbage of the
// last round would delay the next round. AwaitIdle reports false after a minute.
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
