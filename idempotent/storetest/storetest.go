// Package storetest has the tests that every idempotent.Store passes, for those
// who write one:
//
//	func TestStore(t *testing.T) {
//		clock := storetest.NewClock()
//		storetest.Run(t, storetest.Subject{
//			New:  func(t testing.TB) idempotent.Store { return newStore(t, clock.Now) },
//			Pass: clock.Pass,
//		})
//	}
package storetest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/idempotent"
)

// Subject is a kind of Store.
type Subject struct {
	// New returns a store for one test, which ends with t.
	New func(t testing.TB) idempotent.Store

	// Pass makes time pass for all stores. It is called while nothing else is
	// going on. If it is nil, each test runs in a testing/synctest bubble, and
	// sleeps: for a store that knows the time by package time alone.
	Pass func(d time.Duration)
}

// Run runs all tests. A store that has a method
//
//	Purge(ctx context.Context) (int64, error)
//
// is expected to look the same before it and after.
func Run(t *testing.T, s Subject) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s idempotent.Store, pass func(time.Duration))
	}{
		{"a key that is done stays done until its retention has passed", testLife},
		{"a key that is released is free", testRelease},
		{"a key whose lease has ended can be taken over", testTakeover},
		{"what is done late is remembered if nobody has the key", testLate},
		{"a claim is extended by its token", testExtend},
		{"no lease is too short", testShort},
		{"each call can be repeated", testRepeat},
		{"keys are their bytes", testKeys},
		{"one of many gets the key", testOneWins},
		{"nobody else is there while a key is claimed", testExclusion},
		{"nothing is done for a context that has ended", testContext},
		{"any sequence of calls", testModel},
	} {
		t.Run(test.name, func(t *testing.T) {
			if s.Pass != nil {
				test.run(t, s.New(t), s.Pass)
				return
			}
			synctest.Test(t, func(t *testing.T) { test.run(t, s.New(t), time.Sleep) })
		})
	}
}

// Clock is a clock that stands still unless it is told to go on.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows a whole second of our days.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Second)} }

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Pass lets it go on by d.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
