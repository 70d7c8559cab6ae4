package backoff

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Full spreads the delays of b evenly over [0, delay]. It flattens a burst
// best, at the price that some retries come almost at once.
func Full(b Backoff) Jitter { return Jitter{Backoff: b, Spread: 1} }

// Equal spreads the delays of b evenly over [delay/2, delay]: half of the wait
// is certain, half is random.
func Equal(b Backoff) Jitter { return Jitter{Backoff: b, Spread: 0.5} }

// Jitter shortens each delay of a schedule by a random part of it, so that
// messages which failed together do not come back together. It never lengthens
// a delay: the schedule's maximum stays the maximum.
type Jitter struct {
	Backoff Backoff // the schedule to spread; nil means Exponential{}
	Spread  float64 // the part of the delay that is random, 0 (none) to 1 (all)

	// Rand returns a number in [0, 1) and must be safe for concurrent use.
	// Default: math/rand/v2.Float64.
	Rand func() float64
}

func (j Jitter) withDefaults() Jitter {
	if j.Backoff == nil {
		j.Backoff = Exponential{}
	}
	if j.Rand == nil {
		j.Rand = rand.Float64
	}
	return j
}

// Delay returns a random delay in [d×(1-Spread), d], where d is the delay of
// the wrapped schedule.
func (j Jitter) Delay(attempt int) time.Duration {
	j = j.withDefaults()
	return shortened(j.Backoff.Delay(attempt), j.Spread*j.Rand())
}

// Range returns the shortest delay of the wrapped schedule, shortened by Spread,
// and the longest.
func (j Jitter) Range(attempt int) (low, high time.Duration) {
	j = j.withDefaults()
	low, high = Range(j.Backoff, attempt)
	return shortened(low, j.Spread), shortened(high, 0)
}

// shortened takes a part of d away. What is no part, below 0 or above 1, takes
// nothing or all.
func shortened(d time.Duration, part float64) time.Duration {
	whole := float64(d)
	switch cut := whole * part; {
	case cut >= whole:
		return 0
	case cut > 0:
		return d - time.Duration(cut)
	}
	return max(0, d)
}

// Validate reports a spread outside [0, 1] and what is wrong with the wrapped
// schedule.
func (j Jitter) Validate() error {
	if !(j.Spread >= 0 && j.Spread <= 1) { // written so that NaN fails too
		return fmt.Errorf("backoff: Jitter.Spread %v is not in [0, 1]: use 1 (as Full does), 0.5 (as Equal does) or another fraction", j.Spread)
	}
	return Validate(j.Backoff)
}
