package failed

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errTaken says that another process does it.
var errTaken = errors.New("failed: another process does it")

// hold is a claim, which is repeated as long as it is needed.
type hold struct {
	claim func(context.Context) (mine bool, err error)
	lease time.Duration

	// fenced: the store refuses what is not ours any more, so that one may go on when it
	// has not answered for a lease.
	fenced bool
}

// run runs f while the claim is repeated, three times in each lease, also while f comes
// to its end after ctx has. The context of f ends when another one has it: errTaken,
// unless f has done all there is.
func (h hold) run(ctx context.Context, f func(context.Context) error) error {
	running, end := context.WithCancelCause(ctx)
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	var repeating sync.WaitGroup
	repeating.Go(func() {
		until := time.Now().Add(h.lease)
		for sleep(holding, h.lease/3) == nil {
			now := time.Now()
			mine, err := h.claim(holding)
			switch {
			case err == nil && mine:
				until = now.Add(h.lease)
			case err == nil, now.After(until) && !h.fenced:
				end(errTaken) // or there is nothing left to do, which f will see
				return
			}
		}
	})
	err := f(running)
	if context.Cause(running) == errTaken && err != nil {
		err = errTaken
	}
	end(nil)
	release()
	repeating.Wait()
	return err
}
