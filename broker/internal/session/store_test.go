package session

import (
	"context"
	"errors"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// fakeStore is a store that commits only when the test calls commit.
type fakeStore struct {
	store.Store // the session calls no other methods

	mu        sync.Mutex
	committed store.Ticket
	waiters   []store.Waiter // waiters for the next commit
	held      int
	unheld    int // calls of Notify outside Hold and Release
	err       error
	progress  *sync.Cond

	backlog alarm.Alarm
}

func (f *fakeStore) Backlog() <-chan struct{} { return f.backlog.Raised() }

func newFakeStore() *fakeStore {
	f := &fakeStore{}
	f.progress = sync.NewCond(&f.mu)
	return f
}

// nextTicket returns the ticket of the next commit.
func (f *fakeStore) nextTicket() store.Ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed + 1
}

func (f *fakeStore) commit() {
	f.mu.Lock()
	f.committed++
	upTo, notified := f.committed, f.waiters
	f.waiters = nil
	f.progress.Broadcast()
	f.mu.Unlock()
	for _, w := range notified {
		w.Committed(upTo)
	}
}

func (f *fakeStore) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.New("disk failed")
	f.progress.Broadcast()
}

func (f *fakeStore) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held++
}

func (f *fakeStore) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held--
}

func (f *fakeStore) Notify(w store.Waiter) store.Ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiters = append(f.waiters, w)
	if f.held == 0 {
		f.unheld++
	}
	return f.committed + 1
}

func (f *fakeStore) Wait(ctx context.Context, t store.Ticket) error {
	defer context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.progress.Broadcast()
	})()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held > 0 {
		return errors.New("waits for a commit that it holds up")
	}
	for f.committed < t && f.err == nil && ctx.Err() == nil {
		f.progress.Wait()
	}
	switch {
	case f.committed >= t:
		return nil
	case f.err != nil:
		return f.err
	}
	return context.Cause(ctx)
}
