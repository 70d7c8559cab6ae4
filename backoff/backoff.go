// Package backoff computes how long to wait between attempts.
//
// A schedule is a pure function from the number of the attempt that just
// failed to a delay. It does no I/O, keeps no state and is safe for concurrent
// use, so one value can serve every queue of a program.
//
//	attempt          1     2     3     4     5    …
//	Fixed(5s)        5s    5s    5s    5s    5s
//	Exponential      1s    2s    4s    8s   16s   … never over Max
//	List{1s,1m,1h}   1s    1m    1h    1h    1h
//
// What every schedule of this package promises, for any attempt including
// nonsensical ones: the delay is never negative, never over the stated
// maximum, never overflows, and without jitter never shrinks from one attempt
// to the next (a List shrinks only where its author wrote it so).
//
// Jitter spreads messages that failed together, so that they do not all come
// back together: wrap a schedule with Full or Equal.
package backoff

import (
	"fmt"
	"math"
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

// Defaults of Exponential.
const (
	DefaultInitial = time.Second
	DefaultFactor  = 2.0
	DefaultMax     = time.Hour
)

// Exponential multiplies the delay by Factor after every attempt:
// Initial, Initial×Factor, Initial×Factor², … and never more than Max.
// A field left zero takes its default.
type Exponential struct {
	Initial time.Duration // delay after the first attempt; default 1 s
	Factor  float64       // growth per attempt, at least 1; default 2
	Max     time.Duration // upper bound; default 1 h, or Initial where that is longer
}

func (e Exponential) withDefaults() Exponential {
	if e.Initial == 0 {
		e.Initial = DefaultInitial
		if e.Max > 0 {
			e.Initial = min(e.Initial, e.Max)
		}
	}
	if e.Factor == 0 {
		e.Factor = DefaultFactor
	}
	if e.Max == 0 {
		e.Max = max(DefaultMax, e.Initial)
	}
	return e
}

// Delay returns Initial×Factor^(attempt-1), at most Max.
func (e Exponential) Delay(attempt int) time.Duration {
	e = e.withDefaults()
	if attempt <= 1 {
		return max(0, min(e.Initial, e.Max))
	}
	d := float64(e.Initial) * math.Pow(e.Factor, float64(attempt-1))
	// Compared as floats: beyond 2^63 the conversion back is undefined, and
	// NaN (from invalid numbers) must not come out as a huge delay.
	if d >= 0 && d < float64(e.Max) {
		// Doubles round beyond 104 days: never to less than Initial, or more than Max.
		return min(max(0, e.Initial, time.Duration(d)), e.Max)
	}
	return max(0, e.Max)
}

// Validate reports numbers that make no schedule.
func (e Exponential) Validate() error {
	d := e.withDefaults()
	switch {
	case e.Initial < 0:
		return fmt.Errorf("backoff: Exponential.Initial %s is negative: leave it 0 for %s, or use a positive duration", e.Initial, DefaultInitial)
	case e.Max < 0:
		return fmt.Errorf("backoff: Exponential.Max %s is negative: leave it 0 for %s, or use a positive duration", e.Max, DefaultMax)
	case !(d.Factor >= 1) || math.IsInf(d.Factor, 1): // written so that NaN fails too
		return fmt.Errorf("backoff: Exponential.Factor %v is not a growth: use 1 or more (2 doubles the delay each time)", e.Factor)
	case d.Max < d.Initial:
		return fmt.Errorf("backoff: Exponential.Max %s is below Initial %s: raise Max or lower Initial", d.Max, d.Initial)
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
