package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// busy is a store with a commit that is running since newBusy or the last call of commit.
type busy struct {
	store.Store // the test calls no other methods
	since       atomic.Pointer[time.Time]
	failed      chan struct{}
}

func newBusy() *busy {
	b := &busy{failed: make(chan struct{})}
	b.commit()
	return b
}

func (b *busy) commit() {
	now := time.Now()
	b.since.Store(&now)
}

func (b *busy) Behind() time.Duration   { return time.Since(*b.since.Load()) }
func (b *busy) Failed() <-chan struct{} { return b.failed }
func (b *busy) GiveUp(error)            { close(b.failed) }

func (b *busy) givenUp() bool {
	synctest.Wait()
	select {
	case <-b.failed:
		return true
	default:
		return false
	}
}

// Shutdown waits for a slow disk. It waits for a disk that does not respond only until the context is canceled.
func TestHurry(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, b *busy, end func()){
		"there is time": func(t *testing.T, b *busy, _ func()) {
			time.Sleep(time.Hour)
			if b.givenUp() {
				t.Error("given up while there is time")
			}
		},
		"slow": func(t *testing.T, b *busy, end func()) {
			end()
			for range 100 {
				time.Sleep(timeout - time.Second/2)
				b.commit()
			}
			if b.givenUp() {
				t.Error("given up though it answers")
			}
		},
		"hangs": func(t *testing.T, b *busy, end func()) {
			end()
			time.Sleep(timeout)
			if b.givenUp() {
				t.Error("given up too early")
			}
			time.Sleep(2 * time.Second)
			if !b.givenUp() {
				t.Error("not given up")
			}
		},
		"has hung before": func(t *testing.T, b *busy, end func()) {
			time.Sleep(timeout)
			end()
			time.Sleep(2 * time.Second)
			if !b.givenUp() {
				t.Error("not given up")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusy()
				ctx, end := context.WithCancel(context.Background())
				defer end()
				defer Hurry(ctx, b, nil)()
				test(t, b, end)
			})
		})
	}
}

func TestHurryWithWhatOccupiesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := newBusy()
		ctx, end := context.WithCancel(context.Background())
		end()
		var occupied atomic.Bool
		defer Hurry(ctx, idle, occupied.Load)()
		for range 20 {
			time.Sleep(time.Second)
			idle.commit()
		}
		if idle.givenUp() {
			t.Error("given up for nothing")
		}
		occupied.Store(true)
		time.Sleep(2 * time.Second)
		if !idle.givenUp() {
			t.Error("not given up")
		}
	})
}
