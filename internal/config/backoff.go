package config

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// backoff reads a schedule of delays, nil for the default one.
//
//	{initial: 1s, factor: 2, max: 1h}   grows
//	{fixed: 5m}                         always the same
//	{list: [1s, 10s, 1m]}               one by one, then the last
//
// Each may have a jitter. A schedule that grows has equal jitter unless it says
// otherwise, as the library's default has; delays written one by one are kept
// as they are.
func (v value) backoff() backoff.Backoff {
	switch v.kind() {
	case "a text":
		s, _ := v.word()
		if _, err := ParseDuration(s); err != nil {
			s = "5m"
		}
		v.fail("%s", "backoff is a text: write backoff: {fixed: "+s+"}, or {initial: "+s+", factor: 2, max: 1h} for delays that grow")
		return nil
	case "a list":
		v.fail("backoff is a list: write backoff: {list: [1s, 10s, 1m]}")
		return nil
	}
	f, ok := v.fields("backoff")
	if !ok {
		return nil
	}
	defer f.finish()

	initial, hasInitial := f.get("initial")
	factor, hasFactor := f.get("factor")
	longest, hasMax := f.get("max")
	fixed, hasFixed := f.get("fixed")
	list, hasList := f.get("list")
	grows := hasInitial || hasFactor || hasMax

	var b backoff.Backoff
	jitter := "none"
	switch {
	case hasFixed && hasList:
		f.decoder.fail(f.keyAt("list"), "backoff has both fixed and list: keep one")
	case (hasFixed || hasList) && grows:
		f.fail("backoff has delays that grow (initial, factor, max) and others (fixed, list): keep one kind")
	case hasFixed:
		d, _ := fixed.duration(0)
		b = backoff.Fixed(d)
	case hasList:
		b = list.delays()
	default:
		var e backoff.Exponential
		if hasInitial {
			e.Initial, _ = initial.duration(time.Nanosecond)
		}
		if hasFactor {
			e.Factor, _ = factor.number()
			if ok := e.Factor >= 1; !ok && factor.kind() == "a number" {
				factor.fail("backoff.factor is %v: write 1 or more", e.Factor)
			}
		}
		if hasMax {
			e.Max, _ = longest.duration(time.Nanosecond)
		}
		if e.Max > 0 && e.Initial > e.Max {
			initial.fail("backoff.initial (%s) is longer than backoff.max (%s): swap them, or raise max", brief(e.Initial), brief(e.Max))
		}
		if hasMax && !hasInitial && e.Max > 0 && e.Max < backoff.DefaultInitial {
			longest.fail("backoff.max (%s) is shorter than the default of backoff.initial, %s: write initial too", brief(e.Max), brief(backoff.DefaultInitial))
		}
		b, jitter = e, "equal"
	}
	if x, ok := f.get("jitter"); ok {
		if s, ok := x.oneOf("none", "equal", "full"); ok {
			jitter = s
		}
	}
	switch jitter {
	case "equal":
		return backoff.Equal(b)
	case "full":
		return backoff.Full(b)
	}
	return b
}

func (v value) delays() backoff.List {
	items, _ := v.items("delays: [1s, 10s, 1m]")
	var l backoff.List
	for _, item := range items {
		d, _ := item.duration(0)
		l = append(l, d)
	}
	return l
}

// brief writes a duration without the zeros of time.Duration: 1h, not 1h0m0s.
func brief(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
