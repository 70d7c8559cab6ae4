package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/limit"
)

// Maximum values. Larger values are probably mistakes.
const (
	maxBurst     = 1_000_000
	maxFailures  = 1_000_000
	maxImmediate = 100
	maxCrashes   = 1_000_000
)

// DefaultPause is the default pause before an immediate retry.
const DefaultPause = 100 * time.Millisecond

// limits reads the settings that limit the load on the handler, and the effects of duplicates, crashes and slow
// attempts, and where results go.
func (f *fields) limits(w *Worker) {
	f.with("immediate", func(x value) { w.Middleware = append(w.Middleware, x.immediate()) })
	read(f, "rate", &w.Limiter, value.rate)
	read(f, "shared_limit", &w.Shared, func(x value) (*limit.Config, bool) { return x.sharedLimit(w) })
	read(f, "breaker", &w.Breaker, value.breaker)
	read(f, "duplicates", &w.Duplicates, value.duplicates)
	read(f, "results", &w.Results, value.results)
	if r := w.Results; r != nil && r.Exchange == "" && r.Key != "" && r.Key == w.Queue {
		f.failAtKey("results", "results must not go to the queue of the worker, which would handle them again without end")
	}
	read(f, "crash_limit", &w.CrashLimit, orNone(integer(1, maxCrashes), -1))
	read(f, "consumer_timeout", &w.ConsumerTimeout, orNone(duration(time.Minute), -1))
	f.with("debounce", func(x value) { w.Debounce = x.debounce(longestWindow(w.ConsumerTimeout)) })
}

// lease reads the lease of long attempts.
func (f *fields) lease(w *Worker) {
	f.with("lease", func(x value) {
		longest, ok := cmp.Or(max(0, w.ConsumerTimeout), reprise.DefaultConsumerTimeout)/2, false
		if w.Lease, ok = duration(time.Second)(x); ok && w.Lease > longest && w.ConsumerTimeout >= 0 {
			x.fail("%s is %s, which exceeds half of consumer_timeout; write %s or less", x.name, FormatDuration(w.Lease), FormatDuration(longest))
		}
		for _, key := range []string{"debounce", "order_by", "settle"} {
			if _, present := f.find(key); present && (key != "settle" || w.Order != reprise.PublishThenAck) {
				f.failAtKey("lease", "lease must not be combined with %s: remove one of them", key)
			}
		}
	})
}

// immediate reads the number of immediate retries and the pause before each of them.
func (v value) immediate() reprise.Middleware {
	n, pause := 0, DefaultPause
	v.short("immediate", "times", "2", func(x value) { n, _ = integer(1, maxImmediate)(x) }, func(f *fields) {
		read(f, "pause", &pause, duration(0))
	})
	return reprise.Immediate(n, pause)
}

// rate reads the maximum rate of attempts.
func (v value) rate() (reprise.Limiter, bool) {
	return rate.NewLimiter(v.burstRate("rate")), true
}

// burstRate reads a rate and a burst.
func (v value) burstRate(owner string) (limit rate.Limit, burst int) {
	burst = 1
	v.short(owner, "limit", "10/s", func(x value) { limit = x.perSecond() }, func(f *fields) {
		read(f, "burst", &burst, integer(1, maxBurst))
	})
	return limit, burst
}

// sharedLimit reads a limit of all processes together. By default, its name is that of the queue.
func (v value) sharedLimit(w *Worker) (*limit.Config, bool) {
	f, ok := v.fields("shared_limit")
	if !ok {
		return nil, false
	}
	c, before := &limit.Config{Name: w.Queue}, len(f.problems)
	read(f, "name", &c.Name, text("payments"))
	f.with("rate", func(x value) { c.Rate = float64(x.perSecond()) })
	read(f, "concurrency", &c.Concurrency, integer(1, maxConcurrency))
	f.finish()
	if w.Limiter != nil {
		return nil, v.fail("shared_limit must not be combined with rate, the limit of one process: remove rate")
	}
	if err := c.Validate(); err != nil && len(f.problems) == before {
		return nil, v.fail("shared_limit needs either rate: 100/s or concurrency: 3 (and a name of at most %d bytes)", limit.MaxName)
	}
	return c, true
}

// ParseRate parses a rate such as 10/s, 0.5/s or 100/m, and returns the number per second.
func ParseRate(s string) (float64, error) {
	m := perTime.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%s is not a rate (examples: 10/s, 100/m, 5000/h)", brief.Quoted(s))
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return n / seconds[m[2]], err
}

var perTime = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?) ?/ ?(s|m|h|d)$`)

var seconds = map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86400}

// perSecond reads a rate such as 10/s, 0.5/s or 100/m.
func (v value) perSecond() rate.Limit {
	if v.kind() == "a number" {
		v.fail("%s must have a unit: got %s (%[2]s/s per second, %[2]s/m per minute)", v.name, v.notation())
		return 0
	}
	s, ok := v.text("10/s")
	if !ok {
		return 0
	}
	n, err := ParseRate(s)
	switch {
	case err != nil:
		v.fail("%s: %v", v.name, err)
	case n <= 0:
		v.fail("%s is %s, which stops the worker; set a higher rate, or remove the worker", v.name, s)
	}
	return rate.Limit(n)
}

// breaker reads a circuit breaker. {} means the defaults.
func (v value) breaker() (reprise.Breaker, bool) {
	if !v.isMapping() {
		return nil, v.wrong("{failures: 5, open_for: 30s, probes: 1}, or {} for these defaults")
	}
	c, _ := mapping("breaker", func(f *fields, c *breaker.Config) {
		read(f, "failures", &c.Failures, integer(1, maxFailures))
		read(f, "open_for", &c.OpenFor, duration(time.Millisecond))
		read(f, "probes", &c.Probes, integer(1, maxFailures))
	})(v)
	b, err := breaker.New(c)
	if err != nil {
		return nil, v.fail("%v", err)
	}
	return b, true
}
