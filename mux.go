package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
)

// Mux is a Handler that passes each message to the handler of one of its Routes.
//
//	Handler: &reprise.Mux{Routes: []reprise.Route{
//		{Pattern: "order.placed", Handler: reprise.JSON(place)},
//		{Pattern: "order.cancelled", Handler: reprise.JSON(cancel), Policy: reprise.Policy{MaxAttempts: 3}},
//		{Pattern: "report.#", Handler: report, Concurrency: 1},
//	}},
//
// A Route whose Pattern equals the key has priority. Otherwise, the first matching Route applies. A message without a
// matching Route is parked with a *NoRouteError, unless the last Route has the Pattern "#", which matches all keys.
//
// Do not change a Mux after its first message. Several workers may share a Mux.
type Mux struct {
	// By returns the key of a message. RoutingKey and Header are suitable functions. By must be safe for concurrent use, must
	// return immediately, and must not change the message. Default: the Type of the message.
	By func(*Delivery) string

	// Routes are the handlers with their patterns. Required.
	Routes []Route

	compiled sync.Once
	exact    map[string]*Route
	patterns []*Route
}

// Route is the treatment of the messages whose key matches a Pattern of a Mux.
//
// The worker applies the Policy and the Concurrency. It requires that the Mux is the Handler of the WorkerConfig itself,
// so that the worker knows the Route before an attempt starts. Put middleware into WorkerConfig.Middleware, or use Chain for
// the Handler of one Route. If the Mux is wrapped otherwise, messages of such a Route fail and are retried. NewWorker refuses a
// Mux with such a Route that is itself the Handler of a Route.
type Route struct {
	// Pattern is a key, or a pattern as in a binding of a topic exchange: words are separated by ".", "*" matches one word, and
	// "#" matches any number of words. The Pattern "" matches messages without a key. Two Routes must not have the same
	// Pattern. A Pattern with a wildcard must be before the Pattern "#", which matches all keys.
	Pattern string

	// Handler processes the messages. Required.
	Handler Handler

	// Policy overrides fields of WorkerConfig.Policy. Default: a zero field keeps the value of the worker.
	Policy Policy

	// Concurrency is the maximum number of handlers of this Route that run at the same time in the worker. It is part of the
	// Concurrency of the worker. A message above the limit waits until another message of the Route is finished. It does not
	// occupy a handler, so later messages of other Routes start. The waiting messages count towards Prefetch. If all
	// fetched messages wait, other Routes also wait. If a Route receives messages faster than it handles them,
	// use a separate work queue for them. Default: no limit.
	Concurrency int
}

// NoRouteError reports that no Route of a Mux matches the key of a message.
type NoRouteError struct {
	Key      string
	Patterns []string // of the Routes
}

func (e *NoRouteError) Error() string {
	return fmt.Sprintf("reprise: no route matches the key %q (the Mux has the patterns %q)", e.Key, e.Patterns)
}

// errWrapped is the error of an attempt that the worker has not assigned to its Route.
var errWrapped = errors.New("reprise: a Mux with the Policy or Concurrency of a Route must be WorkerConfig.Handler itself (move middleware to WorkerConfig.Middleware; it must not change the key of the message)")

// RoutingKey is a Mux.By. It returns the routing key with which the message was first published.
func RoutingKey(m *Delivery) string { return m.RoutingKey }

// Header returns a Mux.By. It returns the value of a header as a string, or "" if the message does not have the header.
func Header(name string) func(*Delivery) string {
	return func(m *Delivery) string { return headerText(m.Headers[name]) }
}

func headerText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// Handle passes the message to the handler of its Route.
func (x *Mux) Handle(ctx context.Context, m *Delivery) error {
	key := x.key(m)
	r := x.find(key)
	if r == nil {
		return Park(x.noRoute(key))
	}
	if d, ok := ctx.Value(progressKey{}).(*delivery); ok && r.limits() && (d.lane == nil || d.lane.route != r) {
		return errWrapped
	}
	return r.Handler.Handle(ctx, m)
}

func (x *Mux) key(m *Delivery) string {
	if x.By == nil {
		return m.Type
	}
	return x.By(m)
}

// find returns the Route of a key, or nil.
func (x *Mux) find(key string) *Route {
	x.compiled.Do(x.compile)
	if r := x.exact[key]; r != nil {
		return r
	}
	for _, r := range x.patterns {
		if amqpvalue.TopicMatches(r.Pattern, key) {
			return r
		}
	}
	return nil
}

func (x *Mux) compile() {
	x.exact = make(map[string]*Route, len(x.Routes))
	for i := range x.Routes {
		r := &x.Routes[i]
		if isPattern(r.Pattern) {
			x.patterns = append(x.patterns, r)
		} else {
			x.exact[r.Pattern] = r
		}
	}
}

// isPattern reports whether a pattern matches more than one key.
func isPattern(pattern string) bool {
	return slices.ContainsFunc(strings.Split(pattern, "."), func(word string) bool { return word == "*" || word == "#" })
}

func (x *Mux) noRoute(key string) error {
	e := &NoRouteError{Key: key}
	for _, r := range x.Routes {
		e.Patterns = append(e.Patterns, r.Pattern)
	}
	return e
}

// validate reports invalid routes. The argument timeout is the time after which the worker requeues messages.
func (x *Mux) validate(timeout time.Duration) error {
	if x == nil || len(x.Routes) == 0 {
		return errors.New("reprise: Mux.Routes must not be empty (add a Route for each kind of message)")
	}
	var errs []error
	seen := make(map[string]bool, len(x.Routes))
	for _, r := range x.Routes {
		fault := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("reprise: Route %q: "+format, append([]any{r.Pattern}, args...)...))
		}
		if seen[r.Pattern] {
			fault("Pattern must be unique")
		} else if seen["#"] && isPattern(r.Pattern) {
			fault("Pattern must be before the Pattern \"#\", which matches all keys")
		}
		seen[r.Pattern] = true
		if isNil(r.Handler) {
			fault(nilHandler)
		}
		if r.Concurrency < 0 {
			fault("Concurrency must not be negative: got %d (0 means no limit)", r.Concurrency)
		}
		if n := largestBatch(r.Handler); r.Concurrency > 0 && r.Concurrency < n {
			fault("Concurrency must be at least %d, the size of the Batch: got %d (0 means no limit)", n, r.Concurrency)
		}
		for _, err := range []error{validateHandler(r.Handler, timeout), r.Policy.Validate()} {
			if err == nil {
				continue
			}
			for line := range strings.Lines(err.Error()) {
				fault("%s", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "reprise: "))
			}
		}
		if inner, ok := r.Handler.(*Mux); ok && inner != nil && slices.ContainsFunc(inner.Routes, func(r Route) bool { return r.limits() }) {
			fault("Handler must not be a Mux that has a Route with a Policy or a Concurrency (move its Routes to the outer Mux)")
		}
	}
	return errors.Join(errs...)
}

const nilHandler = "Handler must not be nil (convert a function with reprise.HandlerFunc; JSON, Typed and Batch need a function and a Codec)"

// validateHandler reports the faults of a Mux or a Batch.
func validateHandler(h Handler, timeout time.Duration) error {
	switch h := h.(type) {
	case *Mux:
		return h.validate(timeout)
	case *batcher:
		return h.validate(timeout)
	}
	return nil
}

// limitsTime reports whether the Policy of a Route has a time limit.
func (x *Mux) limitsTime() bool {
	return x != nil && slices.ContainsFunc(x.Routes, func(r Route) bool { return r.Policy.limitsTime() })
}

// isNil reports whether a Handler cannot be called.
func isNil(h Handler) bool {
	f, isFunc := h.(HandlerFunc)
	return h == nil || isFunc && f == nil
}

// limits reports whether the worker must know the Route before an attempt.
func (r *Route) limits() bool { return r.Concurrency > 0 || !r.Policy.isZero() }

func (p Policy) isZero() bool {
	return p.MaxAttempts == 0 && p.GiveUpAfter == 0 && p.Backoff == nil && len(p.Rules) == 0
}

// over returns base with the fields of p that are not zero.
func (p Policy) over(base Policy) Policy {
	base.MaxAttempts = cmp.Or(p.MaxAttempts, base.MaxAttempts)
	base.GiveUpAfter = cmp.Or(p.GiveUpAfter, base.GiveUpAfter)
	if p.Backoff != nil {
		base.Backoff = p.Backoff
	}
	if len(p.Rules) > 0 {
		base.Rules = p.Rules
	}
	return base
}

// lane is a Route with a Policy or a Concurrency in one worker.
type lane struct {
	route    *Route
	policy   Policy
	bulkhead *consume.Bulkhead // nil without a Concurrency
}

// lanes returns the lanes of a Mux with a base policy. The result may be nil.
func (x *Mux) lanes(base Policy) (all map[*Route]*lane) {
	for i := range x.Routes {
		r := &x.Routes[i]
		if !r.limits() {
			continue
		}
		l := &lane{route: r, policy: r.Policy.over(base)}
		if r.Concurrency > 0 {
			l.bulkhead = consume.NewBulkhead(r.Concurrency)
		}
		if all == nil {
			all = make(map[*Route]*lane)
		}
		all[r] = l
	}
	return all
}

// laneOf returns the lane of a delivery, or nil. The first call with a delivery calls Mux.By. If By panics, the
// delivery has no lane, and the panic repeats in the attempt.
func (w *Worker) laneOf(d *delivery) *lane {
	if w.lanes == nil || d.routed {
		return d.lane
	}
	d.routed = true
	_ = guard.Call("function Mux.By", func() error {
		mux := w.cfg.Handler.(*Mux)
		m := w.message(d)
		d.lane = w.lanes[mux.find(mux.key(&m))]
		return nil
	})
	return d.lane
}

// policyOf returns the policy for a delivery.
func (pl *planner) policyOf(d *delivery) Policy {
	switch {
	case d.lane == nil:
		return pl.policy
	case !pl.copies:
		return d.lane.policy.counting()
	}
	return d.lane.policy
}
