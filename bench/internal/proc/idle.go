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

// AwaitIdle polls the function used, for example [Busy], until the processor time that it returns almost stops growing.
// Without this wait, a broker that still collects the garbage of one round would delay the next round. If the machine
// is still busy after a minute, AwaitIdle returns false.
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
