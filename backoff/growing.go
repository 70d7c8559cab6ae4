package backoff

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Defaults of the schedules that grow: Initial and Max of all of them, and the Factor
// of Exponential.
const (
	DefaultInitial           = time.Second
	DefaultExponentialFactor = 2.0
	DefaultMax               = time.Hour
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

// Validate reports numbers that make no schedule.
func (e Exponential) Validate() error {
	if err := validateBounds("Exponential", e.Initial, e.Max, DefaultInitial); err != nil {
		return err
	}
	return validateFactor("Exponential", e.withDefaults().Factor, "2 doubles the delay each time")
}

// Linear lengthens the delay by Step after every attempt:
// Initial, Initial+Step, Initial+2×Step, … and never more than Max.
// A field left zero takes its default: Linear{Step: d} waits d, 2d, 3d, …
type Linear struct {
	Initial time.Duration // delay after the first attempt; default Step, or 1 s where that is 0 too
	Step    time.Duration // growth per attempt; default Initial
	Max     time.Duration // upper bound; default 1 h, or Initial where that is longer
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
	initial, step, most := max(0, l.Initial), max(0, l.Step), max(0, l.Max)
	steps := time.Duration(max(attempt, 1) - 1)
	if initial >= most || (step > 0 && steps > (most-initial)/step) {
		return most
	}
	return initial + steps*step
}

// Validate reports numbers that make no schedule.
func (l Linear) Validate() error {
	if l.Step < 0 {
		return fmt.Errorf("backoff: Linear.Step %s is negative: leave it 0 for Initial, or use a positive duration", l.Step)
	}
	first := cmp.Or(l.Step, DefaultInitial)
	return validateBounds("Linear", l.Initial, l.Max, first)
}

// bounds fills in the first and the longest delay of a schedule where they were
// left out, so that the first is never the longer one.
func bounds(initial, most, first time.Duration) (time.Duration, time.Duration) {
	if initial == 0 {
		initial = first
		if most > 0 {
			initial = min(initial, most)
		}
	}
	most = cmp.Or(most, max(DefaultMax, initial))
	return initial, most
}

func validateBounds(schedule string, initial, most, first time.Duration) error {
	switch {
	case initial < 0:
		return fmt.Errorf("backoff: %s.Initial %s is negative: leave it 0 for %s, or use a positive duration", schedule, initial, first)
	case most < 0:
		return fmt.Errorf("backoff: %s.Max %s is negative: leave it 0 for %s, or use a positive duration", schedule, most, DefaultMax)
	}
	if initial, most := bounds(initial, most, first); most < initial {
		return fmt.Errorf("backoff: %s.Max %s is below Initial %s: raise Max or lower Initial", schedule, most, initial)
	}
	return nil
}

func validateFactor(schedule string, factor float64, example string) error {
	if !(factor >= 1) || math.IsInf(factor, 1) { // written so that NaN fails too
		return fmt.Errorf("backoff: %s.Factor %v is not a growth: use 1 or more (%s)", schedule, factor, example)
	}
	return nil
}

// within makes nanoseconds a delay from low to high. They are compared before
// they are converted, since beyond 2⁶³ the conversion is undefined; NaN, which
// only numbers make that Validate refuses, counts as low. Where low is above
// high, high wins.
func within(ns float64, low, high time.Duration) time.Duration {
	d := low
	switch {
	case ns >= float64(high):
		d = high
	case ns > float64(low):
		// Doubles round beyond 104 days.
		d = max(low, time.Duration(ns))
	}
	return max(0, min(d, high))
}
