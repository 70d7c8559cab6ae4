package config

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

// routeKind is a route by its name in the file.
type routeKind struct {
	name     string
	defaults topology.Route
	example  string // of its settings; "" for none
	settings func(*fields) topology.Route
}

var routeKinds = []routeKind{
	{"buckets", topology.Buckets{}, "{base: 1s, growth: 1.25}", (*fields).buckets},
	{"levels", topology.Levels{}, "", nil},
	{"message-ttl", topology.MessageTTL{}, "", nil},
	{"requeue", topology.Requeuing{}, "", nil},
	{"dead-letter", topology.DeadLettering{Delay: topology.DefaultDeadLetteringDelay}, "{delay: 5m}", (*fields).deadLettering},
	{"delayed-retry", topology.DelayedRetry{Min: topology.DefaultDelayedRetryMin, Max: topology.DefaultDelayedRetryMax}, "{min: 10s, max: 1h}", (*fields).delayedRetry},
}

func routeNames() []string {
	var names []string
	for _, k := range routeKinds {
		names = append(names, k.name)
	}
	return names
}

// route reads how failed messages come back: the name of a route, or one with its
// settings.
//
//	route: levels
//	route: {dead-letter: {delay: 5m}}
func (v value) route() topology.Route {
	switch v.kind() {
	case "a text":
		s, _ := v.word()
		if timed(s) {
			v.fail("route is how a message waits, and not how long: write backoff: {fixed: %s}", s)
			return nil
		}
		if near, ok := closest(s, routeNames()); ok && near != s {
			v.fail("route cannot be %s: did you mean %s?", quoted(s), near)
			return nil
		}
		s, _ = v.oneOf(routeNames()...)
		for _, k := range routeKinds {
			if k.name == s {
				return k.defaults
			}
		}
		return nil
	case "a mapping":
	default:
		v.wrong("one of the names " + oneOfThese(routeNames()))
		return nil
	}
	var route topology.Route
	v.mapping("route", func(f *fields) {
		for _, k := range routeKinds {
			f.read(k.name, func(x value) {
				if route != nil {
					f.decoder.fail(f.keyAt(k.name), "route has two names, a worker has one route: keep one")
					return
				}
				route = x.settings(k)
			})
		}
		if route == nil {
			f.missing("route names none: write route: "+routeKinds[0].name, routeNames()...)
		}
	})
	return route
}

// settings reads the settings of a route.
func (v value) settings(k routeKind) topology.Route {
	route := k.defaults
	switch {
	case k.settings == nil:
		v.fail("route %s has no settings: write route: %s", k.name, k.name)
	case v.kind() != "a mapping":
		v.wrong(k.example)
	default:
		v.mapping("route "+k.name, func(f *fields) { route = k.settings(f) })
	}
	return route
}

func (f *fields) deadLettering() topology.Route {
	r := topology.DeadLettering{Delay: topology.DefaultDeadLetteringDelay}
	f.waitInto("delay", &r.Delay)
	return r
}

// maxGrowth is the growth of buckets beyond which it is a slip.
const maxGrowth = 10

func (f *fields) buckets() topology.Route {
	var r topology.Buckets
	f.waitInto("base", &r.Base)
	growth, written := f.get("growth")
	if written {
		n, ok := growth.number()
		switch {
		case !ok:
			return topology.Buckets{}
		case !(n > 1):
			growth.fail("%s is %v: write more than 1, such as 1.25 for retries that are at most a quarter late", growth.name, n)
			return topology.Buckets{}
		case n > maxGrowth:
			growth.fail("%s is %v, retries would be so many times as late: write %d or less", growth.name, n, maxGrowth)
			return topology.Buckets{}
		}
		r.Growth = n
	}
	if r.Validate() != nil {
		f.fail("route buckets would have buckets narrower than a millisecond: write a longer base, or more growth (the defaults are %s and %v)",
			topology.DefaultBucketsBase, topology.DefaultBucketsGrowth)
		return topology.Buckets{}
	}
	return r
}

func (f *fields) delayedRetry() topology.Route {
	r := topology.DelayedRetry{Min: topology.DefaultDelayedRetryMin, Max: topology.DefaultDelayedRetryMax}
	f.waitInto("min", &r.Min)
	before := len(f.problems)
	f.waitInto("max", &r.Max)
	switch x, written := f.get("max"); {
	case len(f.problems) > before:
	case !written:
		r.Max = max(r.Max, r.Min)
	case r.Max < r.Min:
		x.fail("%s (%s) is shorter than %s (%s): swap them", x.name, FormatDuration(r.Max), f.path("min"), FormatDuration(r.Min))
		r.Max = r.Min
	}
	return r
}

// waitInto reads, if it is there, a time that a queue can be given.
func (f *fields) waitInto(key string, d *time.Duration) {
	f.read(key, func(x value) {
		if t, ok := x.wait(); ok {
			*d = t
		}
	})
}

// wait reads a time that a queue can be given.
func (v value) wait() (time.Duration, bool) {
	d, ok := v.duration(time.Millisecond)
	if ok && (d%time.Millisecond != 0 || d > topology.MaxDelay) {
		v.fail("%s is %s: write whole milliseconds, 49d at most", v.name, FormatDuration(d))
		return 0, false
	}
	return d, ok
}

// delays are those that a route has of its own, whatever the policy says; nil for
// a route that waits as long as it is told.
func delays(r topology.Route) backoff.Backoff {
	switch r := r.(type) {
	case topology.Requeuing:
		return backoff.Fixed(0)
	case topology.DeadLettering:
		return backoff.Fixed(r.Delay)
	case topology.DelayedRetry:
		return backoff.Linear{Initial: r.Min, Step: r.Min, Max: r.Max}
	}
	return nil
}

// unheard refuses what a route takes no notice of.
func (f *fields) unheard(r topology.Route) {
	counts := func(name string) {
		f.refuse(fmt.Sprintf("cannot be kept with route: %s, nothing tells when a message first failed: limit attempts", name), "give_up_after")
		f.refuse(fmt.Sprintf("means nothing with route: %s, where a crash counts as an attempt: limit attempts", name), "crash_limit")
	}
	switch r := r.(type) {
	case topology.Requeuing:
		f.refuse("means nothing with route: requeue, which retries at once: remove it, or choose another route", "backoff")
		counts("requeue")
	case topology.DeadLettering:
		f.refuse(fmt.Sprintf("means nothing with route: dead-letter, where every retry waits %s: write route: {dead-letter: {delay: 5m}}",
			FormatDuration(r.Delay)), "backoff")
	case topology.DelayedRetry:
		f.refuse("means nothing with route: delayed-retry, where the queue sets the delays: write route: {delayed-retry: {min: 10s, max: 1h}}", "backoff")
		counts("delayed-retry")
	}
}
