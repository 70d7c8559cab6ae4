package config

import (
	"regexp"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
)

// Bounds of numbers, beyond which they are a slip.
const (
	maxBurst     = 1_000_000
	maxFailures  = 1_000_000
	maxImmediate = 100
	maxCrashes   = 1_000_000
)

// DefaultPause is the pause before an immediate run of a handler.
const DefaultPause = 100 * time.Millisecond

// limits reads what protects a handler, and the queue from it.
func (f *fields) limits(w *Worker) {
	f.read("immediate", func(x value) { w.Middleware = append(w.Middleware, x.immediate()) })
	f.read("rate", func(x value) { w.Limiter = x.rate() })
	f.read("breaker", func(x value) { w.Breaker = x.breaker() })
	f.read("duplicates", func(x value) { w.Duplicates = x.duplicates() })
	f.read("crash_limit", func(x value) { w.CrashLimit = x.crashLimit() })
	f.read("consumer_timeout", func(x value) { w.ConsumerTimeout = x.consumerTimeout() })
	f.read("debounce", func(x value) { w.Debounce = x.debounce(longestWindow(w.ConsumerTimeout)) })
}

// immediate reads the number of times that a handler runs again at once.
func (v value) immediate() reprise.Middleware {
	n, pause := 0, DefaultPause
	v.short("immediate", "times", "2", func(x value) { n, _ = x.integer(1, maxImmediate) }, func(f *fields) {
		f.durationInto("pause", &pause, 0)
	})
	return reprise.Immediate(n, pause)
}

// rate reads the rate at which attempts may begin.
func (v value) rate() reprise.Limiter {
	limit, burst := rate.Limit(0), 1
	v.short("rate", "limit", "10/s", func(x value) { limit = x.perSecond() }, func(f *fields) {
		f.integerInto("burst", &burst, 1, maxBurst)
	})
	return rate.NewLimiter(limit, burst)
}

var perTime = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?) ?/ ?(s|m|h|d)$`)

var seconds = map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86400}

// perSecond reads a number in a time: 10/s, 0.5/s, 100/m.
func (v value) perSecond() rate.Limit {
	if v.kind() == "a number" {
		n := v.node.GetToken().Value
		v.fail("%s has no unit: write %s/s for so many a second, %s/m for so many a minute", v.name, n, n)
		return 0
	}
	s, ok := v.text("10/s")
	if !ok {
		return 0
	}
	m := perTime.FindStringSubmatch(s)
	if m == nil {
		v.fail("%s: %s is no rate: write one such as 10/s, 100/m or 5000/h", v.name, quoted(s))
		return 0
	}
	n, _ := strconv.ParseFloat(m[1], 64) // it is a number, as the pattern has it
	if n <= 0 {
		v.fail("%s is %s, nothing would ever be handled: write more, or remove the worker", v.name, s)
	}
	return rate.Limit(n / seconds[m[2]])
}

// breaker reads a circuit breaker; {} has the defaults.
func (v value) breaker() reprise.Breaker {
	if v.kind() != "a mapping" {
		v.wrong("{failures: 5, open_for: 30s, probes: 1}, or {} for just that")
		return nil
	}
	var c breaker.Config
	v.mapping("breaker", func(f *fields) {
		f.integerInto("failures", &c.Failures, 1, maxFailures)
		f.durationInto("open_for", &c.OpenFor, time.Millisecond)
		f.integerInto("probes", &c.Probes, 1, maxFailures)
	})
	b, err := breaker.New(c)
	if err != nil {
		v.fail("%v", err)
		return nil
	}
	return b
}

// crashLimit reads a number, or the word for no limit.
func (v value) crashLimit() int {
	if v.none() {
		return -1
	}
	if v.kind() == "a text" {
		s, _ := v.word()
		v.fail("%s cannot be %s: write a whole number from 1 to %d, or none", v.name, quoted(s), maxCrashes)
		return 0
	}
	n, _ := v.integer(1, maxCrashes)
	return n
}

// consumerTimeout reads a time, or the word for none.
func (v value) consumerTimeout() time.Duration {
	if v.none() {
		return -1
	}
	if v.kind() == "a text" {
		if s, _ := v.word(); !timed(s) {
			v.fail("%s cannot be %s: write a time such as 30m, or none", v.name, quoted(s))
			return 0
		}
	}
	d, _ := v.duration(time.Minute)
	return d
}
