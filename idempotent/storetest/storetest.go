// Package storetest contains tests for implementations of idempotent.Store:
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

// Subject is the Store implementation under test.
type Subject struct {
	// New returns a store for one test. The store must remain usable until t ends.
	New func(t testing.TB) idempotent.Store

	// Pass advances the time of all stores. Run calls it while no other call is running. If Pass is nil, each test runs
	// in a testing/synctest bubble and sleeps. Leave Pass nil for a store that uses only the clock of package time.
	Pass func(d time.Duration)
}

// Run runs all tests against the stores that s.New returns. If the store has the method
//
//	Purge(ctx context.Context) (int64, error)
//
// Run also checks that Purge does not change the visible state of the store.
func Run(t *testing.T, s Subject) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s idempotent.Store, pass func(time.Duration))
	}{
		{"completed key stays done until its retention ends", testLife},
		{"Release frees a claimed key", testRelease},
		{"expired claim can be taken over", testTakeover},
		{"Complete after the lease succeeds if the key is free", testLate},
		{"Claim with the same token extends the lease", testExtend},
		{"short leases", testShort},
		{"repeated calls have no further effect", testRepeat},
		{"keys with different bytes differ", testKeys},
		{"one of several concurrent claims succeeds", testOneWins},
		{"claims are exclusive", testExclusion},
		{"calls with a canceled context have no effect", testContext},
		{"random calls", testModel},
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

// Clock is a clock that advances only when Pass is called.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that starts at the current time, truncated to a second.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Second)} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Pass advances the clock by d.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
