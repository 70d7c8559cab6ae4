// Package backoff computes the delays between attempts.
//
// A schedule maps the number of the failed attempt to a delay. It does not perform I/O or keep state, and it is safe for
// concurrent use. All queues of a program can share one schedule.
//
//	attempt          1     2     3     4     5    …
//	Fixed(5s)        5s    5s    5s    5s    5s
//	List{1s,1m,1h}   1s    1m    1h    1h    1h
//	Linear           1s    2s    3s    4s    5s   … at most Max
//	Exponential      1s    2s    4s    8s   16s   … at most Max
//	Decorrelated    1-3s  1-9s 1-27s 1-81s 1-243s … at most Max
//
// Every schedule of this package guarantees, for any attempt number and also for fields that Validate rejects:
//
//   - The delay is never negative, never exceeds the configured maximum and never
//     overflows.
//   - Without jitter, the delay never decreases from one attempt to the next, unless the entries of a List decrease.
//
// Jitter spreads the retries of messages that failed at the same time. To add jitter, wrap a schedule in Full or Equal, or
// use Decorrelated, which is random without a wrapper. Range returns the bounds of a delay.
//
// The String method of a schedule returns a readable description, for example
// "exponential from 1s ×2 up to 1h, half random".
package backoff

import (
	"fmt"
	"time"
)

// Backoff computes the delay after a failed attempt.
//
// The argument of Delay is the number of the failed attempt, counted from 1. The
// schedules of this package treat an attempt below 1 as 1. Delay must be safe for
// concurrent use.
type Backoff interface {
	Delay(attempt int) time.Duration
}

// Validate returns an error that names an invalid field of b and its permitted
// values. A schedule of another package can implement Validate() error. Without
// this method, Validate accepts the schedule. A nil b is valid, because a nil
// Backoff in a configuration selects the default.
func Validate(b Backoff) error {
	if v, ok := b.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Range returns the shortest and the longest delay of b after an attempt. Both are
// equal if b is not random. b must not be nil.
//
// A schedule of another package can implement
// Range(attempt int) (low, high time.Duration). Without this method, Range calls
// Delay once and returns the result as both bounds.
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

// Delay returns the fixed time, or 0 if the time is negative.
func (f Fixed) Delay(int) time.Duration { return max(0, time.Duration(f)) }

// Validate returns an error if the time is negative.
func (f Fixed) Validate() error {
	if f < 0 {
		return fmt.Errorf("backoff: Fixed must not be negative: got %s (0 retries immediately)", time.Duration(f))
	}
	return nil
}

// List contains the delay after each attempt. The last entry applies to all further
// attempts. The delay of an empty List is 0.
type List []time.Duration

// Delay returns the entry for the attempt, or the last entry if the list is
// shorter. It returns 0 for a negative entry.
func (l List) Delay(attempt int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return max(0, l[min(max(attempt, 1), len(l))-1])
}

// Validate returns an error if the list is empty or contains a negative entry.
func (l List) Validate() error {
	if len(l) == 0 {
		return fmt.Errorf("backoff: List must not be empty (List{time.Minute} always waits 1m)")
	}
	for i, d := range l {
		if d < 0 {
			return fmt.Errorf("backoff: List[%d] must not be negative: got %s (0 retries immediately)", i, d)
		}
	}
	return nil
}
