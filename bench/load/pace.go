package load

import (
	"math"
	"syscall"
	"time"
)

// plan is how much a publisher is to publish, and how fast.
type plan struct {
	count    int64 // messages
	begin    int64 // of the clock
	end      int64 // of the clock, too
	interval float64
}

// tick is how often a publisher wakes at most. At a higher rate it writes a few
// messages at a time: to wake for each would cost the machine more than they do.
const tick = 500 * time.Microsecond

func newPlan(o *Options, count int64, duration time.Duration, publisher int) plan {
	p := plan{count: math.MaxInt64, begin: clock(), end: math.MaxInt64}
	if duration > 0 {
		p.end = p.begin + int64(duration)
	} else {
		p.count = count / int64(o.Publishers)
		if int64(publisher) < count%int64(o.Publishers) {
			p.count++
		}
	}
	if o.Rate > 0 {
		p.interval = 1e9 / o.Rate * float64(o.Publishers)
		p.begin += int64(1e9 / o.Rate * float64(publisher)) // one after the other
	}
	return p
}

func (p *plan) paced() bool { return p.interval > 0 }

// wait returns, after sent messages, how many are due, one at least, and the time
// from which their latency counts. That is now, if the publisher could keep its
// pace. If it comes late, because the broker held it up, it is when the first of
// them should have been sent: what waits in front of a broker waits for it, too.
func (p *plan) wait(sent int64) (due, at int64) {
	at = p.begin + int64(float64(sent)*p.interval)
	now := clock()
	if now < at {
		now = sleepUntil(max(at, min(now+int64(tick), p.end)))
		at = now
	}
	return max(1, int64(float64(now-p.begin)/p.interval)+1-sent), at
}

// sleepUntil sleeps in the kernel: the timers of Go's runtime are off by as much
// as a millisecond, which is two messages at two thousand a second.
func sleepUntil(t int64) (now int64) {
	for now = clock(); now < t; now = clock() {
		left := syscall.NsecToTimespec(t - now)
		_ = syscall.Nanosleep(&left, nil) // interrupted, it is asked again
	}
	return now
}
