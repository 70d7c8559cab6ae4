package backoff

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// DefaultDecorrelatedFactor is the default of Decorrelated.Factor. With a factor
// below e (2.72), most delays stay near Initial for any number of attempts.
const DefaultDecorrelatedFactor = 3.0

// Decorrelated is the schedule known as "decorrelated jitter"
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter). Each delay is random, between Initial and
// Factor times the previous delay, and never exceeds Max. The range grows quickly, but the delays grow slowly. Messages that
// failed at the same time are therefore far apart by the second retry. A zero field takes its default.
//
// A schedule does not keep state, so each call of Delay draws all previous delays again, starting with the first
// attempt. The distribution of a delay is the same as with stored delays, but successive delays of one message are not
// correlated. The cost of a call grows by some nanoseconds with each attempt, up to attempt 1000. Later delays have the
// distribution of attempt 1000.
//
// As in the published algorithm, a delay above Max becomes Max. With the defaults, from about attempt 50 on, this applies to
// about one delay in five. By then, the earlier delays have spread the messages.
type Decorrelated struct {
	Initial time.Duration // shortest delay; default 1 s, or Max if Max is shorter
	Factor  float64       // maximum ratio to the previous delay, at least 1; default 3
	Max     time.Duration // upper bound; default 1 h, or Initial if Initial is longer

	// Rand returns a number in [0, 1) and must be safe for concurrent use.
	// Default: math/rand/v2.Float64.
	Rand func() float64
}

// maxChain limits the work of one call of Delay. For delays from milliseconds to
// days, the distribution is stable after 300 attempts.
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

// after returns the delay that follows a previous delay, for a random number in [0, 1].
func (d Decorrelated) after(delay, random float64) float64 {
	low, high := float64(d.Initial), max(1, d.Factor)*delay
	high = min(high, math.MaxFloat64) // otherwise infinity times a random 0 would be NaN
	return min(low+random*(high-low), float64(d.Max))
}

// Validate returns an error if a field is invalid or Max is below Initial.
func (d Decorrelated) Validate() error {
	if err := validateBounds("Decorrelated", d.Initial, d.Max, DefaultInitial); err != nil {
		return err
	}
	return validateFactor("Decorrelated", d.withDefaults().Factor, "3 permits up to three times the previous delay")
}
