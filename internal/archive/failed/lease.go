package failed

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errTaken is returned if another process has the lease.
var errTaken = errors.New("failed: another process has the lease")

// leaseHolder renews a lease while a function runs.
type leaseHolder struct {
	claim func(context.Context) (mine bool, err error)
	lease time.Duration

	// fenced specifies whether the store refuses the writes of a former owner. If it does, the function may continue
	// after the lease has expired, while the store does not respond.
	fenced bool
}

// run calls f and renews the lease three times per lease duration until f returns, even after ctx is done. If another
// owner takes the lease, or the lease expires and fenced is not set, run cancels the context of f and returns errTaken,
// unless f returns nil.
func (h leaseHolder) run(ctx context.Context, f func(context.Context) error) error {
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
				end(errTaken) // claim also reports false if the work is complete, but then f returns nil
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
