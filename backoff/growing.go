package backoff

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Defaults of Exponential, Linear and Decorrelated. Only Exponential uses
// DefaultExponentialFactor.
const (
	DefaultInitial           = time.Second
	DefaultExponentialFactor = 2.0
	DefaultMax               = time.Hour
)

// Exponential multiplies the delay by Factor after every attempt: Initial,
// Initial×Factor, Initial×Factor², … The delay never exceeds Max.
// A zero field takes its default.
type Exponential struct {
	Initial time.Duration // delay after the first attempt; default 1 s, or Max if Max is shorter
	Factor  float64       // growth per attempt, at least 1; default 2
	Max     time.Duration // upper bound; default 1 h, or Initial if Initial is longer
}

func (e Exponential) withDefaults() Exponential {
	e.Initial, e.Max = bounds(e.Initial, e.Max, DefaultInitial)
	e.Factor = cmp.Or(e.Factor, DefaultExponentialFactor)
	return e
}

// Delay returns Initial×Factor^(attempt-1), at most Max.
func (e Exponential) Delay(attempt int) time.Duration {
	e = e.withDefaults()
	growth := math.Pow(max(1, e.Factor), float64(max(attempt, 1)-1))
	return within(float64(e.Initial)*growth, e.Initial, e.Max)
}

// Validate returns an error if a field is invalid or Max is below Initial.
func (e Exponential) Validate() error {
	if err := validateBounds("Exponential", e.Initial, e.Max, DefaultInitial); err != nil {
		return err
	}
	return validateFactor("Exponential", e.withDefaults().Factor, "2 doubles the delay each time")
}

// Linear adds Step to the delay after every attempt: Initial, Initial+Step,
// Initial+2×Step, … The delay never exceeds Max. A zero field takes its default.
// For example, Linear{Step: d} waits d, 2d, 3d, …
type Linear struct {
	Initial time.Duration // delay after the first attempt; default Step, or 1 s if Step is 0, but at most Max
	Step    time.Duration // growth per attempt; default Initial
	Max     time.Duration // upper bound; default 1 h, or Initial if Initial is longer
}

func (l Linear) withDefaults() Linear {
	first := cmp.Or(l.Step, DefaultInitial)
	l.Initial, l.Max = bounds(l.Initial, l.Max, first)
	l.Step = cmp.Or(l.Step, l.Initial)
	return l
}

// Delay returns Initial+(attempt-1)×Step, at most Max.
func (l Linear) Delay(attempt int) time.Duration {
	l = l.withDefaults()
	initial, step, longest := max(0, l.Initial), max(0, l.Step), max(0, l.Max)
	steps := time.Duration(max(attempt, 1) - 1)
	if initial >= longest || (step > 0 && steps > (longest-initial)/step) {
		return longest
	}
	return initial + steps*step
}

// Validate returns an error if a field is invalid or Max is below Initial.
func (l Linear) Validate() error {
	if l.Step < 0 {
		return fmt.Errorf("backoff: Linear.Step must not be negative: got %s (0 means Initial)", l.Step)
	}
	first := cmp.Or(l.Step, DefaultInitial)
	return validateBounds("Linear", l.Initial, l.Max, first)
}

// bounds replaces initial and longest with their defaults if they are 0. A default never makes initial longer
// than longest.
func bounds(initial, longest, first time.Duration) (time.Duration, time.Duration) {
	if initial == 0 {
		initial = first
		if longest > 0 {
			initial = min(initial, longest)
		}
	}
	longest = cmp.Or(longest, max(DefaultMax, initial))
	return initial, longest
}

func validateBounds(schedule string, initial, longest, first time.Duration) error {
	switch {
	case initial < 0:
		return fmt.Errorf("backoff: %s.Initial must not be negative: got %s (0 means %s)", schedule, initial, first)
	case longest < 0:
		return fmt.Errorf("backoff: %s.Max must not be negative: got %s (0 means %s)", schedule, longest, DefaultMax)
	}
	if initial, longest := bounds(initial, longest, first); longest < initial {
		return fmt.Errorf("backoff: %s.Max must not be below Initial %s: got %s", schedule, initial, longest)
	}
	return nil
}

func validateFactor(schedule string, factor float64, example string) error {
	if !(factor >= 1) || math.IsInf(factor, 1) { // this form also rejects NaN
		return fmt.Errorf("backoff: %s.Factor must be finite and at least 1: got %v (%s)", schedule, factor, example)
	}
	return nil
}

// within converts nanoseconds to a delay between low and high. It compares before it
// converts, because the conversion is undefined beyond 2⁶³. NaN, which results only
// from fields that Validate rejects, becomes low. If low is above high, within
// uses high. A negative result becomes 0.
func within(ns float64, low, high time.Duration) time.Duration {
	d := low
	switch {
	case ns >= float64(high):
		d = high
	case ns > float64(low):
		// A float64 rounds nanoseconds beyond 104 days, so the result may be below low.
		d = max(low, time.Duration(ns))
	}
	return max(0, min(d, high))
}
