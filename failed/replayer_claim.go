package failed

import (
	"context"
	"errors"
	"time"
)

// claimed runs f while this Replayer has the replay for itself: errTaken if it has
// not, and why the context of f ends if that has come to be so.
func (x *run) claimed(ctx context.Context, f func(context.Context) error) error {
	id, mine := x.replay.ID, false
	h := hold{lease: x.cfg.Lease, claim: func(ctx context.Context) (bool, error) {
		return x.store.claimReplay(ctx, id, x.owner, x.cfg.Lease)
	}}
	err := x.insist(ctx, func(ctx context.Context) (err error) {
		mine, err = h.claim(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case !mine:
		return errTaken
	}
	err = h.run(ctx, f)
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	if bad := x.store.releaseReplay(longer, id, x.owner); bad != nil && !errors.Is(bad, context.Canceled) {
		x.cfg.Logger.Warn("replay waits", "replay", id, "error", bad, "next_try", time.Duration(0))
	}
	return err
}
