// Package clock has the time of the delays in a broker, which a test can move: message TTLs, queue TTLs and delayed retries.
// Heartbeats, timeouts and statistics use real time.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is a clock ahead of real time. A nil Clock is real time.
type Clock struct {
	ahead  atomic.Int64 // in nanoseconds
	moving sync.Mutex   // held by Advance

	mu      sync.Mutex
	timers  map[*Timer]struct{} // that run
	working int                 // see Work
	idle    *sync.Cond          // signals that working is 0
}

// New returns a Clock with real time.
func New() *Clock {
	c := &Clock{timers: map[*Timer]struct{}{}}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// Until returns the time from now to t.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Work adds n to the number of goroutines that do what the function of a timer has started. Advance waits for them before
// it moves the clock further.
func (c *Clock) Work(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working += n; c.working == 0 {
		c.idle.Broadcast()
	}
}

// Advance moves the clock by d. It runs the functions of the timers that are due in the meantime in order, each at its own
// time, including the timers that these functions start. It returns after the last of them.
func (c *Clock) Advance(d time.Duration) {
	c.moving.Lock()
	defer c.moving.Unlock()
	target := c.Now().Add(d)
	for t := c.next(target); t != nil; t = c.next(target) {
		t.f()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(target)
	for t := range c.timers {
		t.real.Reset(c.Until(t.due))
	}
}

// next moves the clock to the first timer that is due until the target, and stops the timer. Without such a timer, it
// returns nil.
func (c *Clock) next(target time.Time) (first *Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.working > 0 {
		c.idle.Wait()
	}
	for t := range c.timers {
		if !t.due.After(target) && (first == nil || t.due.Before(first.due)) {
			first = t
		}
	}
	if first != nil {
		first.stop()
		c.moveTo(first.due)
	}
	return first
}

// moveTo moves the clock forward, unless it is later than t.
func (c *Clock) moveTo(t time.Time) {
	if left := c.Until(t); left > 0 {
		c.ahead.Add(int64(left))
	}
}

// Timer calls a function at a time of a Clock, in its own goroutine or in that of Advance.
type Timer struct {
	clock *Clock
	real  *time.Timer
	f     func()
	due   time.Time // guarded by the lock of the clock
}

// AfterFunc starts a timer that calls f after d. Advance can call f once more than the timer fires, if both happen at the
// same moment.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, f: f}
	if c == nil {
		t.real = time.AfterFunc(d, f)
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.start(d)
	t.real = time.AfterFunc(d, t.fire)
	return t
}

// Reset starts the timer again, so that it fires after d.
func (t *Timer) Reset(d time.Duration) {
	if t.clock != nil {
		t.clock.mu.Lock()
		defer t.clock.mu.Unlock()
		t.start(d)
	}
	t.real.Reset(d)
}

// Stop stops the timer.
func (t *Timer) Stop() {
	if t.clock == nil {
		t.real.Stop()
		return
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.stop()
}

func (t *Timer) start(d time.Duration) {
	t.due = t.clock.Now().Add(d)
	t.clock.timers[t] = struct{}{}
}

func (t *Timer) stop() {
	delete(t.clock.timers, t)
	t.real.Stop()
}

// fire calls the function if the timer still runs.
func (t *Timer) fire() {
	t.clock.mu.Lock()
	_, running := t.clock.timers[t]
	delete(t.clock.timers, t)
	t.clock.mu.Unlock()
	if running {
		t.f()
	}
}
