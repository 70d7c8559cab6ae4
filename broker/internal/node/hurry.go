package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// patience is for how long a disk may be busy with one commit before it is taken for one that does not answer: a disk that
// is merely slow gets through with what it has.
const patience = 5 * time.Second

var errGivenUp = errors.New(
	"ended while the disk did not answer: what was not confirmed may be lost, what was delivered comes again")

// Hurry sees to it that nobody who ends a node waits for ever for its store: once the context has ended, the store is given
// up when it has been busy with one commit for too long, or when for as long it is occupied by something else, if that is
// not nil. Until the function is called that it returns, this is looked at each second.
//
// It holds no lock, and takes none that somebody may hold who waits for the disk.
func Hurry(ctx context.Context, s store.Store, occupied func() bool) (stop func()) {
	if s == nil || ctx.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		ended := time.Now()
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-done:
				return
			case <-s.Failed():
				return
			case <-look.C:
			}
			if s.Behind() > patience || occupied != nil && occupied() && time.Since(ended) > patience {
				s.GiveUp(errGivenUp)
				return
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}
