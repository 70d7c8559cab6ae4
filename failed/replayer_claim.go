package failed

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errTaken says that another process carries a replay out.
var errTaken = errors.New("failed: another process carries the replay out")

// claimed runs f while this Replayer has the replay for itself: errTaken if it has
// not, and why the context of f ends if that has come to be so.
func (x *run) claimed(ctx context.Context, f func(context.Context) error) error {
	id, mine := x.replay.ID, false
	err := x.insist(ctx, func(ctx context.Context) (err error) {
		mine, err = x.store.Claim(ctx, id, x.owner, x.cfg.Lease)
		return err
	})
	if err != nil {
		return err
	}
	if !mine {
		return errTaken
	}
	running, end := context.WithCancelCause(ctx)
	held, release := context.WithCancel(context.WithoutCancel(ctx)) // f may take longer than ctx
	var extending sync.WaitGroup
	extending.Go(func() {
		until := time.Now().Add(x.cfg.Lease)
		for sleep(held, x.cfg.Lease/3) == nil {
			now := time.Now()
			mine, err := x.store.Claim(held, id, x.owner, x.cfg.Lease)
			switch {
			case err == nil && mine:
				until = now.Add(x.cfg.Lease)
			case err == nil, now.After(until):
				end(errTaken) // or it is over, which f will see
				return
			}
		}
	})
	err = f(running)
	if context.Cause(running) == errTaken && err != nil {
		err = errTaken
	}
	end(nil)
	release()
	extending.Wait()
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	if bad := x.store.Release(longer, id, x.owner); bad != nil && !errors.Is(bad, context.Canceled) {
		x.cfg.Logger.Warn("replay waits", "replay", id, "error", bad, "next_try", time.Duration(0))
	}
	return err
}
