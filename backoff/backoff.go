// Package backoff computes how long to wait between attempts.
//
// A schedule is a pure function from the number of the attempt that just
// failed to a delay. It does no I/O, keeps no state and is safe for concurrent
// use, so one value can serve every queue of a program.
//
//	attempt          1     2     3     4     5    …
//	Fixed(5s)        5s    5s    5s    5s    5s
//	List{1s,1m,1h}   1s    1m    1h    1h    1h
//	Linear           1s    2s    3s    4s    5s   … never over Max
//	Exponential      1s    2s    4s    8s   16s   … never over Max
//	Decorrelated    1-3s  1-9s 1-27s 1-81s 1-243s … never over Max
//
// What every schedule of this package promises, for any attempt including
// nonsensical ones: the delay is never negative, never over the stated
// maximum, never overflows, and without jitter never shrinks from one attempt
// to the next (a List shrinks only where its author wrote it so). That holds
// for numbers that Validate refuses, too.
//
// Jitter spreads messages that failed together, so that they do not all come
// back together: wrap a schedule with Full or Equal, or take Decorrelated, which
// is random by itself. Range tells between which bounds a delay will be.
//
// Every schedule has a method String that describes it for people: "exponential
// from 1s ×2 up to 1h, half random".
package backoff

import (
	"fmt"
	"time"
)

// Backoff says how long to wait after a failed attempt.
//
// Delay is called with the number of the attempt that just failed, counted
// from 1; an attempt below 1 is taken as 1. It must be safe for concurrent use.
type Backoff interface {
	Delay(attempt int) time.Duration
}

// Validate reports what is wrong with the numbers of b and what to write
// instead. Schedules of other packages take part by having a method
// Validate() error; without one they are trusted. A nil b is valid: it means
// "the default" wherever a Backoff is configured.
func Validate(b Backoff) error {
	if v, ok := b.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Range returns the shortest and the longest delay that b, which is not nil, can
// give after an attempt. They are the same where nothing is random.
//
// Schedules of other packages take part by having a method
// Range(attempt int) (low, high time.Duration); of one without, a single Delay
// is taken for all of them.
func Range(b Backoff, attempt int) (low, high time.Duration) {
	if r, ok := b.(interface {
		Range(attempt int) (low, high time.Duration)
	}); ok {
		return r.Range(attempt)
	}
	d := max(0, b.Delay(attempt))
	return d, d
}

// Fixed waits the same time after every attempt.
type Fixed time.Duration

// Delay returns the fixed time; a negative one counts as zero.
func (f Fixed) Delay(int) time.Duration { return max(0, time.Duration(f)) }

// Validate reports a negative time.
func (f Fixed) Validate() error {
	if f < 0 {
		return fmt.Errorf("backoff: Fixed(%s) is negative: use 0 to retry at once, or a positive duration", time.Duration(f))
	}
	return nil
}

// List gives the delay after each attempt one by one; the last one is repeated
// for all attempts beyond the list. An empty list never waits.
type List []time.Duration

// Delay returns the attempt-th entry of the list, or the last; a negative one
// counts as zero.
func (l List) Delay(attempt int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return max(0, l[min(max(attempt, 1), len(l))-1])
}

// Validate reports an empty list and negative entries.
func (l List) Validate() error {
	if len(l) == 0 {
		return fmt.Errorf("backoff: List is empty: give at least one delay, such as List{time.Minute}")
	}
	for i, d := range l {
		if d < 0 {
			return fmt.Errorf("backoff: List entry %d is %s: use 0 to retry at once, or a positive duration", i, d)
		}
	}
	return nil
}
