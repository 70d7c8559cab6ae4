package config

import (
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// backoff reads a schedule of delays, nil for the default one: see [Backoff].
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
	var schedule backoff.Backoff
	v.mapping("backoff", func(f *fields) {
		var b Backoff
		written := map[string]value{}
		read := func(key string, into func(value)) {
			f.read(key, func(x value) {
				b.Keys = append(b.Keys, key)
				written[key] = x
				into(x)
			})
		}
		read("initial", func(x value) { b.Initial, _ = x.duration(time.Nanosecond) })
		read("factor", func(x value) {
			var ok bool
			if b.Factor, ok = x.number(); !ok {
				b.Factor = 1 // one problem is enough
			}
		})
		read("step", func(x value) { b.Step, _ = x.duration(time.Nanosecond) })
		read("max", func(x value) { b.Max, _ = x.duration(time.Nanosecond) })
		read("fixed", func(x value) { b.Fixed, _ = x.duration(0) })
		read("list", func(x value) { b.List = x.delays() })
		read("jitter", func(x value) { b.Jitter, _ = x.text("equal") })
		var misfits []Misfit
		schedule, misfits = b.Schedule(f.path)
		for _, m := range misfits {
			written[m.Key].fail("%s", m.Text)
		}
	})
	return schedule
}

func (v value) delays() []time.Duration {
	items, _ := v.items("delays: [1s, 10s, 1m]")
	var l []time.Duration
	for _, item := range items {
		d, _ := item.duration(0)
		l = append(l, d)
	}
	return l
}
