package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

// ErrTaken is returned if another process has the lease.
var ErrTaken = errors.New("another process has the lease")

// Lease renews a lease while a function runs.
type Lease struct {
	Claim func(context.Context) (mine bool, err error)
	Lease time.Duration

	// Fenced specifies whether the store refuses the writes of a former owner. If it does, the function may continue
	// after the lease has expired, while the store does not respond.
	Fenced bool
}

// Run calls f and renews the lease three times per lease duration until f returns, even after ctx is done. If another
// owner takes the lease, or the lease expires and Fenced is not set, Run cancels the context of f and returns ErrTaken,
// unless f returns nil.
func (h Lease) Run(ctx context.Context, f func(context.Context) error) error {
	running, end := context.WithCancelCause(ctx)
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	var repeating sync.WaitGroup
	repeating.Go(func() {
		until := time.Now().Add(h.Lease)
		for retry.Sleep(holding, h.Lease/3) == nil {
			now := time.Now()
			mine, err := h.Claim(holding)
			switch {
			case err == nil && mine:
				until = now.Add(h.Lease)
			case err == nil, now.After(until) && !h.Fenced:
				end(ErrTaken) // claim also reports false if the work is complete, but then f returns nil
				return
			}
		}
	})
	err := f(running)
	if context.Cause(running) == ErrTaken && err != nil {
		err = ErrTaken
	}
	end(nil)
	release()
	repeating.Wait()
	return err
}
