package backoff

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// DefaultDecorrelatedFactor is the Factor of Decorrelated unless it says
// otherwise. With less than e (2.72) most delays stay near Initial, however many
// attempts there are.
const DefaultDecorrelatedFactor = 3.0

// Decorrelated is the schedule known as "decorrelated jitter": each delay is
// random, between Initial and Factor times the one before, and never more than
// Max (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter).
// The range grows quickly and the delays in it slowly, so that messages which
// failed together are far apart from the second retry on. A field left zero
// takes its default.
//
// A schedule has no memory, so Delay draws the delays before from the first
// attempt on, anew on every call. The delay after an attempt has the distribution
// it has where they are remembered; what two delays of one message have to do
// with each other is lost. It costs time that grows with the attempt, some
// nanoseconds for each, up to the 1000th: later delays are distributed as that
// one is.
//
// As published, a delay that was drawn above Max becomes Max: with the defaults
// one in five of the late ones. By then the earlier ones have spread the
// messages.
type Decorrelated struct {
	Initial time.Duration // the shortest delay; default 1 s
	Factor  float64       // how much longer than the one before a delay may be, at least 1; default 3
	Max     time.Duration // upper bound; default 1 h, or Initial where that is longer

	// Rand returns a number in [0, 1) and must be safe for concurrent use.
	// Default: math/rand/v2.Float64.
	Rand func() float64
}

// maxChain bounds the work of one Delay: by then the distribution has settled,
// for delays from milliseconds to days after 300 attempts.
const maxChain = 1000

func (d Decorrelated) withDefaults() Decorrelated {
	d.Initial, d.Max = bounds(d.Initial, d.Max, DefaultInitial)
	d.Factor = cmp.Or(d.Factor, DefaultDecorrelatedFactor)
	if d.Rand == nil {
		d.Rand = rand.Float64
	}
	return d
}

// Delay returns a random delay in [Initial, Initial×Factor^attempt], at most Max.
func (d Decorrelated) Delay(attempt int) time.Duration {
	d = d.withDefaults()
	delay := float64(d.Initial)
	for range min(max(attempt, 1), maxChain) {
		delay = d.after(delay, d.Rand())
	}
	return within(delay, d.Initial, d.Max)
}

// Range returns Initial and Initial×Factor^attempt, at most Max.
func (d Decorrelated) Range(attempt int) (low, high time.Duration) {
	d = d.withDefaults()
	shortest := float64(d.Initial)
	longest := shortest
	for range min(max(attempt, 1), maxChain) {
		if longest >= float64(d.Max) {
			break
		}
		longest = d.after(longest, 1)
	}
	return within(shortest, d.Initial, d.Max), within(longest, d.Initial, d.Max)
}

// after returns the delay that comes after another one.
func (d Decorrelated) after(delay, random float64) float64 {
	low, high := float64(d.Initial), max(1, d.Factor)*delay
	high = min(high, math.MaxFloat64) // infinity times a random 0 would be no number
	return min(low+random*(high-low), float64(d.Max))
}

// Validate reports numbers that make no schedule.
func (d Decorrelated) Validate() error {
	if err := validateBounds("Decorrelated", d.Initial, d.Max, DefaultInitial); err != nil {
		return err
	}
	return validateFactor("Decorrelated", d.withDefaults().Factor, "3 lets a delay be up to three times the one before")
}
