package backoff

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Full spreads the delays of b evenly over [0, delay]. It flattens a burst best, but some delays are almost 0.
func Full(b Backoff) Jitter { return Jitter{Backoff: b, Spread: 1} }

// Equal spreads the delays of b evenly over [delay/2, delay]. Half of the delay is
// fixed and half is random.
func Equal(b Backoff) Jitter { return Jitter{Backoff: b, Spread: 0.5} }

// Jitter shortens each delay of a schedule by a random part. The random part spreads the retries of messages that
// failed at the same time. Jitter never lengthens a delay, so the maximum of the schedule remains valid.
type Jitter struct {
	Backoff Backoff // schedule to spread; default Exponential{}
	Spread  float64 // random part of the delay, from 0 (none) to 1 (all)

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

// Range returns the shortest delay of the wrapped schedule, shortened by Spread, and
// the longest delay of the wrapped schedule.
func (j Jitter) Range(attempt int) (low, high time.Duration) {
	j = j.withDefaults()
	low, high = Range(j.Backoff, attempt)
	return shortened(low, j.Spread), shortened(high, 0)
}

// shortened returns d×(1-part). A part below 0 counts as 0, and a part above 1 as 1.
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

// Validate returns an error if Spread is outside [0, 1] or if the wrapped schedule is
// invalid.
func (j Jitter) Validate() error {
	if !(j.Spread >= 0 && j.Spread <= 1) { // this form also rejects NaN
		return fmt.Errorf("backoff: Jitter.Spread must be between 0 and 1: got %v (Full uses 1, Equal 0.5)", j.Spread)
	}
	return Validate(j.Backoff)
}
