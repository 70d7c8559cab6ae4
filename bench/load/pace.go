package load

import (
	"math"
	"syscall"
	"time"
)

// plan specifies the number of messages and the rate of a publisher.
type plan struct {
	count    int64 // number of messages
	begin    int64 // a time of clock
	end      int64 // a time of clock
	interval float64
}

// tick is the minimum time for which a paced publisher sleeps, unless the run ends earlier. At rates above one message
// per tick, the publisher writes several messages at a time, because one wake-up per message would use more processor
// time than the messages themselves.
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
		p.begin += int64(1e9 / o.Rate * float64(publisher)) // space the publishers evenly
	}
	return p
}

func (p *plan) paced() bool { return p.interval > 0 }

// wait waits until the next message is due. It returns the number of due messages, at least one, and the time from
// which to measure their latency. If the publisher is on schedule, this time is now. If the broker has delayed the
// publisher, this time is when the first of these messages was due. The latency then includes the delay (no coordinated
// omission).
func (p *plan) wait(sent int64) (due, at int64) {
	at = p.begin + int64(float64(sent)*p.interval)
	now := clock()
	if now < at {
		now = sleepUntil(max(at, min(now+int64(tick), p.end)))
		at = now
	}
	return max(1, int64(float64(now-p.begin)/p.interval)+1-sent), at
}

// sleepUntil sleeps until t and returns the current time. It sleeps in a system call, because timers of the Go runtime
// can be a millisecond late: two messages, at a rate of 2,000 per second.
func sleepUntil(t int64) (now int64) {
	for now = clock(); now < t; now = clock() {
		left := syscall.NsecToTimespec(t - now)
		_ = syscall.Nanosleep(&left, nil) // a signal can interrupt the sleep; the loop continues it
	}
	return now
}
