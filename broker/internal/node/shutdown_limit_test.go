package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// busyStore is a store in which a commit is always in progress. The commit began at the last call of commit.
type busyStore struct {
	store.Store // nil; the test calls only the methods below
	since       atomic.Pointer[time.Time]
	failed      chan struct{}
}

func newBusyStore() *busyStore {
	b := &busyStore{failed: make(chan struct{})}
	b.commit()
	return b
}

func (b *busyStore) commit() {
	now := time.Now()
	b.since.Store(&now)
}

func (b *busyStore) Behind() time.Duration   { return time.Since(*b.since.Load()) }
func (b *busyStore) Failed() <-chan struct{} { return b.failed }
func (b *busyStore) GiveUp(error)            { close(b.failed) }

func (b *busyStore) givenUp() bool {
	synctest.Wait()
	select {
	case <-b.failed:
		return true
	default:
		return false
	}
}

// A shutdown waits for a slow disk. If the context is canceled and the disk does not respond, LimitShutdown makes the
// store give up.
func TestLimitShutdown(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, b *busyStore, end func()){
		"context is not canceled": func(t *testing.T, b *busyStore, _ func()) {
			time.Sleep(time.Hour)
			if b.givenUp() {
				t.Error("GiveUp was called before the cancellation")
			}
		},
		"slow disk": func(t *testing.T, b *busyStore, end func()) {
			end()
			for range 100 {
				time.Sleep(commitTimeout - time.Second/2)
				b.commit()
			}
			if b.givenUp() {
				t.Error("GiveUp was called for a disk that responds")
			}
		},
		"disk hangs": func(t *testing.T, b *busyStore, end func()) {
			end()
			time.Sleep(commitTimeout)
			if b.givenUp() {
				t.Error("GiveUp was called before the timeout")
			}
			time.Sleep(2 * time.Second)
			if !b.givenUp() {
				t.Error("GiveUp was not called")
			}
		},
		"hangs before the cancellation": func(t *testing.T, b *busyStore, end func()) {
			time.Sleep(commitTimeout)
			end()
			time.Sleep(2 * time.Second)
			if !b.givenUp() {
				t.Error("GiveUp was not called")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusyStore()
				ctx, end := context.WithCancel(context.Background())
				defer end()
				defer LimitShutdown(ctx, b, nil)()
				test(t, b, end)
			})
		})
	}
}

func TestLimitShutdownWhileStoreIsOccupied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := newBusyStore()
		ctx, end := context.WithCancel(context.Background())
		end()
		var occupied atomic.Bool
		defer LimitShutdown(ctx, idle, occupied.Load)()
		for range 20 {
			time.Sleep(time.Second)
			idle.commit()
		}
		if idle.givenUp() {
			t.Error("GiveUp was called for an unoccupied store")
		}
		occupied.Store(true)
		time.Sleep(2 * time.Second)
		if !idle.givenUp() {
			t.Error("GiveUp was not called")
		}
	})
}
