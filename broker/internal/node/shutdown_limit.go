package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// commitTimeout is the duration of a commit above which the disk is considered unresponsive. Even a slow disk is
// faster.
const commitTimeout = 5 * time.Second

var errGivenUp = errors.New(
	"shut down before the disk responded; unconfirmed messages may be lost, and delivered messages are redelivered")

// LimitShutdown limits the time for which a shutdown waits for the store. When ctx is done, it starts to check the
// store once per second, until the caller calls stop. It calls GiveUp if a commit has been running for more than 5
// seconds, or if occupied still returns true more than 5 seconds after ctx is done. The function occupied may be nil.
//
// LimitShutdown does not acquire locks that a caller could hold while it waits for the disk.
func LimitShutdown(ctx context.Context, s store.Store, occupied func() bool) (stop func()) {
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
			if s.Behind() > commitTimeout || occupied != nil && occupied() && time.Since(ended) > commitTimeout {
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
