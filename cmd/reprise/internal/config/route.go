package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

// routeKind describes a kind of route, which the file refers to by name.
type routeKind struct {
	name     string
	defaults topology.Route
	example  string // example of its settings; "": no settings
	settings func(*fields) topology.Route
}

var routeKinds = []routeKind{
	{"buckets", topology.Buckets{}, "{base: 1s, growth: 1.25}", (*fields).buckets},
	{"levels", topology.Levels{}, "", nil},
	{"message-ttl", topology.MessageTTL{}, "", nil},
	{"requeue", topology.Requeuing{}, "{classic: true}", (*fields).requeuing},
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

// route reads the route of retries: the name of a route, or a name with settings.
//
//	route: levels
//	route: {dead-letter: {delay: 5m}}
func (v value) route() (route topology.Route, ok bool) {
	switch s := v.plain(); {
	case timed(s):
		return nil, v.fail("route does not set the delay; write backoff: {fixed: %s}", s)
	case v.kind() == "a string":
		name, ok := oneOf(routeNames()...)(v)
		i := slices.IndexFunc(routeKinds, func(k routeKind) bool { return k.name == name })
		if !ok {
			return nil, false
		}
		return routeKinds[i].defaults, true
	case !v.isMapping():
		return nil, v.wrong("one of the names " + oneOfThese(routeNames()))
	}
	f, _ := v.fields("route")
	for _, k := range routeKinds {
		f.with(k.name, func(x value) {
			if ok {
				f.failAtKey(k.name, "route has two names: keep one")
				return
			}
			route, ok = x.settings(k), true
		})
	}
	if !ok {
		f.missing("route needs a name; write route: "+routeKinds[0].name, routeNames()...)
	}
	f.finish()
	return route, ok
}

// settings reads the settings of a route.
func (v value) settings(k routeKind) topology.Route {
	route := k.defaults
	switch {
	case k.settings == nil:
		v.fail("route %s has no settings; write route: %s", k.name, k.name)
	case !v.isMapping():
		v.wrong(k.example)
	default:
		f, _ := v.fields("route " + k.name)
		route = k.settings(f)
		f.finish()
	}
	return route
}

func (f *fields) requeuing() topology.Route {
	var r topology.Requeuing
	read(f, "classic", &r.Classic, value.boolean)
	return r
}

func (f *fields) deadLettering() topology.Route {
	r := topology.DeadLettering{Delay: topology.DefaultDeadLetteringDelay}
	read(f, "delay", &r.Delay, value.wait)
	return r
}

// maxGrowth is the maximum growth of buckets. A larger growth is probably a mistake.
const maxGrowth = 10

func (f *fields) buckets() topology.Route {
	var r topology.Buckets
	read(f, "base", &r.Base, value.wait)
	read(f, "growth", &r.Growth, func(x value) (float64, bool) {
		n, ok := number("a number")(x)
		switch {
		case ok && !(n > 1): // this form also rejects NaN
			return 0, x.fail("%s must be greater than 1: got %v (1.25 delays retries by up to 25%%)", x.name, n)
		case n > maxGrowth:
			return 0, x.fail("%s must be at most %[3]d: got %[2]v (the factor by which a retry may be late)", x.name, n, maxGrowth)
		}
		return n, ok
	})
	if r.Validate() != nil {
		f.fail("route buckets needs buckets of at least 1ms; set a longer base, or a larger growth (defaults: %s and %v)",
			topology.DefaultBucketsBase, topology.DefaultBucketsGrowth)
		return topology.Buckets{}
	}
	return r
}

func (f *fields) delayedRetry() topology.Route {
	r := topology.DelayedRetry{Min: topology.DefaultDelayedRetryMin, Max: topology.DefaultDelayedRetryMax}
	read(f, "min", &r.Min, value.wait)
	longest := read(f, "max", &r.Max, func(x value) (time.Duration, bool) {
		d, ok := x.wait()
		if ok && d < r.Min {
			return 0, x.fail("%s (%s) is shorter than %s (%s): swap them", x.name, FormatDuration(d), f.path("min"), FormatDuration(r.Min))
		}
		return d, ok
	})
	if !longest {
		r.Max = max(r.Max, r.Min)
	}
	return r
}

// wait reads a delay of whole milliseconds, at most topology.MaxDelay.
func (v value) wait() (time.Duration, bool) {
	d, ok := duration(time.Millisecond)(v)
	if ok && (d%time.Millisecond != 0 || d > topology.MaxDelay) {
		return 0, v.fail("%s must be whole milliseconds, at most 49d: got %s", v.name, FormatDuration(d))
	}
	return d, ok
}

// delays returns the delays of a route that ignores the policy. It returns nil for a route that follows the policy.
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

// refuseIgnored refuses the keys that a route ignores.
func (f *fields) refuseIgnored(r topology.Route) {
	counts := func(name string) {
		f.refuse(fmt.Sprintf("does not apply to route: %s, whose messages do not contain the time of the first failure: limit attempts", name), "give_up_after")
		f.refuse(fmt.Sprintf("does not apply to route: %s, where a crash counts as an attempt: limit attempts", name), "crash_limit")
	}
	switch r := r.(type) {
	case topology.Requeuing:
		f.refuse("does not apply to route: requeue, which retries immediately: remove it, or use another route", "backoff")
		counts("requeue")
	case topology.DeadLettering:
		f.refuse(fmt.Sprintf("does not apply to route: dead-letter, whose delay is %s; write route: {dead-letter: {delay: 5m}}",
			FormatDuration(r.Delay)), "backoff")
	case topology.DelayedRetry:
		f.refuse("does not apply to route: delayed-retry, whose delays are set by the queue; write route: {delayed-retry: {min: 10s, max: 1h}}", "backoff")
		counts("delayed-retry")
	}
}
