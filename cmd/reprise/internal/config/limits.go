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
	if x, ok := f.get("immediate"); ok {
		w.Middleware = append(w.Middleware, x.immediate())
	}
	if x, ok := f.get("rate"); ok {
		w.Limiter = x.rate()
	}
	if x, ok := f.get("breaker"); ok {
		w.Breaker = x.breaker()
	}
	if x, ok := f.get("duplicates"); ok {
		w.Duplicates = x.duplicates()
	}
	if x, ok := f.get("crash_limit"); ok {
		w.CrashLimit = x.crashLimit()
	}
	if x, ok := f.get("consumer_timeout"); ok {
		w.ConsumerTimeout = x.consumerTimeout()
	}
	if x, ok := f.get("debounce"); ok {
		w.Debounce = x.debounce(longestWindow(w.ConsumerTimeout))
	}
}

// immediate reads how often a handler that failed is run again at once, or a
// mapping with that.
func (v value) immediate() reprise.Middleware {
	times, pause := v, DefaultPause
	if v.kind() == "a mapping" {
		f, ok := v.fields("immediate")
		if !ok {
			return reprise.Immediate(0, 0)
		}
		defer f.finish()
		if x, ok := f.get("pause"); ok {
			pause, _ = x.duration(0)
		}
		if times, ok = f.get("times"); !ok {
			f.missing("immediate has no times: add times: 2", "times")
			return reprise.Immediate(0, 0)
		}
	}
	n, _ := times.integer(1, maxImmediate)
	return reprise.Immediate(n, pause)
}

// rate reads how often an attempt may begin, or a mapping with that.
func (v value) rate() reprise.Limiter {
	limit, burst := v, 1
	if v.kind() == "a mapping" {
		f, ok := v.fields("rate")
		if !ok {
			return nil
		}
		defer f.finish()
		if x, ok := f.get("burst"); ok {
			burst, _ = x.integer(1, maxBurst)
		}
		if limit, ok = f.get("limit"); !ok {
			f.missing("rate has no limit: add limit: 10/s", "limit")
			return nil
		}
	}
	return rate.NewLimiter(limit.perSecond(), burst)
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
	f, ok := v.fields("breaker")
	if !ok {
		return nil
	}
	defer f.finish()
	var c breaker.Config
	if x, ok := f.get("failures"); ok {
		c.Failures, _ = x.integer(1, maxFailures)
	}
	if x, ok := f.get("open_for"); ok {
		c.OpenFor, _ = x.duration(time.Millisecond)
	}
	if x, ok := f.get("probes"); ok {
		c.Probes, _ = x.integer(1, maxFailures)
	}
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
