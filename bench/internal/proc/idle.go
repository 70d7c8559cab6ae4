package proc

import (
	"context"
	"time"
)

const (
	idleFor   = 300 * time.Millisecond
	idleShare = 0.1 // fraction of a processor
	idleTries = 200
)

// AwaitIdle waits until the processor time that the function used returns stops growing; see [Busy]. Otherwise, a
// broker that still collects garbage from one round would delay the next round. AwaitIdle returns false if the machine
// is still busy after a minute.
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
