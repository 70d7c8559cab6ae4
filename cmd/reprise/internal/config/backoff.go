package config

import (
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// backoff reads a schedule of delays. It returns nil for the default schedule; see [Backoff].
func (v value) backoff() (schedule backoff.Backoff, ok bool) {
	switch v.kind() {
	case "a string":
		s := v.plain()
		if !timed(s) {
			s = "5m"
		}
		return nil, v.fail("backoff must be a mapping; write backoff: {fixed: %s}, or {initial: %s, factor: 2, max: 1h} for growing delays", s, s)
	case "a list":
		return nil, v.fail("backoff must be a mapping; write backoff: {list: [1s, 10s, 1m]}")
	}
	f, ok := v.fields("backoff")
	if !ok {
		return nil, false
	}
	var b Backoff
	if _, ok := f.find("factor"); ok {
		b.Factor = 1 // avoids a second problem if the factor is invalid
	}
	positive, any := duration(time.Nanosecond), duration(0)
	read(f, "initial", &b.Initial, positive)
	read(f, "factor", &b.Factor, number("a number"))
	read(f, "step", &b.Step, positive)
	read(f, "max", &b.Max, positive)
	read(f, "fixed", &b.Fixed, any)
	read(f, "list", &b.List, list("a list of delays such as [1s, 10s, 1m]", any))
	read(f, "jitter", &b.Jitter, text("equal"))
	for _, p := range f.pairs {
		if f.knows(p.key) {
			b.Keys = append(b.Keys, p.key)
		}
	}
	f.finish()
	schedule, conflicts := b.Schedule(f.path)
	for _, m := range conflicts {
		x, _ := f.find(m.Key)
		x.fail("%s", m.Text)
	}
	return schedule, true
}
