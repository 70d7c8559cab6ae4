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

// AwaitIdle polls used, which returns a processor time as [Busy] does, until that time almost stops growing. Without this
// wait, a broker that still collects the garbage of one round would delay the next round. AwaitIdle returns false if the
// time is still growing after a minute.
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
