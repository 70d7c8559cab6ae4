package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// Routing determines how messages return to their work queues. With the zero value, messages are sent by the name of their
// work queue, through the default exchange, but not if they were published through an exchange.
//
// A message returns through an exchange, with its original routing key, if this target provably routes to the work
// queue of the message and to no other queue. Then programs other than Reprise workers can also process the message and
// retry it as usual. The proof is
//
//   - Bindings, for the original exchange of the message, for the exchange of the queue's worker, or for the only
//     exchange that routes to the queue;
//   - without Bindings, the Strategy of the queue's worker, if retries return through an exchange, as in most designs
//     of package preset: see topology.Strategy.Return.
//
// If the routing key is the name of the queue or is not known, the message gets the only key with which the exchange of
// the Strategy routes to the queue. If retries of the queue's worker return by the name of the queue, the message does the
// same, and also if nothing indicates that messages reach the queue through an exchange. All other messages can return by the
// name of their queue only, and stay where they are unless Plan.ByQueueName or RedriveConfig.ByQueueName permits it: see
// Destination.Route. Bindings come from the management API, because AMQP has no method to list them.
type Routing struct {
	// Workers are the workers to which messages return. Only Queue, Strategy and Topology are used.
	Workers []reprise.WorkerConfig

	// Bindings returns all exchanges and bindings of the virtual host, as the management API lists them. It is called
	// during a replay, at most every 5 s, so a replay may notice a change up to 5 s late. If it returns an error,
	// Workers determine the routing. Default: none.
	Bindings func(context.Context) (topology.Topology, error)

	// Queue returns a queue with its effective arguments. They prove that the broker has dead-lettered a message from the queue to
	// the failed queue, which a header only claims. Default: none; headers are not proven.
	Queue func(ctx context.Context, name string) (topology.Queue, error)
}

// Values of Destination.Route. All other values begin with RouteLearnt, followed by the source.
const (
	RouteOriginal = "original"           // the exchange and the key of the first publish
	RouteGiven    = "given"              // the target that the operator set
	RouteLearnt   = "learnt from "       // prefix
	RouteAssumed  = "assumed by name"    // the original target is unknown, and nothing indicates an exchange
	RouteByName   = "by queue name only" // needs the permission of the operator
)

// route is the target to which a message returns: see Destination.
type route struct {
	failed.Target
	Queue   string // the only queue to which the Target routes; "": not proven
	Route   string
	Warning string // only of RouteAssumed and RouteByName
}

// RouteError is returned for a message that can return only by the name of its queue, if the operator has not permitted
// this.
type RouteError struct {
	Queue   string
	Warning string // see Destination.Warning
}

func (e *RouteError) Error() string {
	return fmt.Sprintf("only the queue name leads to %s, and sending by queue name is not permitted: %s", brief.Quoted(e.Queue), e.Warning)
}

// check returns a RouteError unless the message may be sent to the target.
func (r route) check(byQueueName bool) error {
	if r.Route == RouteByName && !byQueueName {
		return &RouteError{r.Queue, r.Warning}
	}
	return nil
}

// maxBindingsAge is the time for which a result of Routing.Bindings is used.
const maxBindingsAge = 5 * time.Second

// router finds the target to which messages return. It is safe for concurrent use.
type router struct {
	Routing
	log      *slog.Logger
	declared topology.Topology // the topology of Workers

	mu    sync.Mutex
	asked time.Time
	live  bool  // whether the field all contains the result of Bindings
	err   error // the error of Bindings
	all   topology.Topology
	found map[store.Origin]route
	dead  map[[2]string]bool // results of deadLetters
}

func newRouter(r Routing, log *slog.Logger) *router {
	all := &router{Routing: r, log: log}
	for _, w := range r.Workers {
		all.declared = all.declared.Merge(w.Strategy.WithDefaults().Route.Topology(w.Queue), w.Topology)
	}
	return all
}

// maxFound limits the size of the cache, because publishers can choose any number of routing keys.
const maxFound = 10_000

// of returns the target to which a message returns. It returns an error only if ctx is done.
func (r *router) of(ctx context.Context, m store.Origin) (route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ask(ctx); err != nil {
		return route{}, err
	}
	to, known := r.found[m]
	if !known {
		if len(r.found) >= maxFound {
			clear(r.found)
		}
		to = r.find(m)
		r.found[m] = to
	}
	return to, nil
}

// toQueue returns the route of a message to the queue that the operator set. The name of this queue is a safe target
// unless its messages are known to arrive through an exchange.
func (r *router) toQueue(ctx context.Context, m store.Origin, queue string) (route, error) {
	r.mu.Lock()
	err := r.ask(ctx)
	throughExchange := r.throughExchange(queue) || m.Queue == queue && m.Exchange != ""
	r.mu.Unlock()
	if err != nil || !throughExchange {
		return route{Target: failed.Target{RoutingKey: queue}, Queue: queue, Route: RouteGiven}, err
	}
	if m.Exchange == "" && m.Key == m.Queue {
		m.Key = "" // the name of another queue does not identify a binding
	}
	m.Queue = queue
	return r.of(ctx, m)
}

// toExchange returns the route to the exchange and the key that the operator set for all messages.
func (r *router) toExchange(ctx context.Context, to failed.Target) (route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ask(ctx); err != nil {
		return route{}, err
	}
	w := route{Target: to, Route: RouteGiven}
	if reached, err := r.all.Reach(to.Exchange, to.RoutingKey); err == nil && r.live && len(reached) == 1 {
		w.Queue = reached[0]
	}
	return w, nil
}

// toRecorded returns the route of a message of which only the original exchange and key are known, because the program that moved it
// has recorded them. They must lead to exactly one queue. If no exchange has that name, a key of the same name is the name of a
// queue: see Watermill's topics.
func (r *router) toRecorded(ctx context.Context, m store.Origin) (route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ask(ctx); err != nil {
		return route{}, err
	}
	if !r.live {
		return route{}, fmt.Errorf("%w; only the management API shows where exchange %s leads", errUnknownQueue, brief.Quoted(m.Exchange))
	}
	to := route{Target: failed.Target{Exchange: m.Exchange, RoutingKey: m.Key}, Route: RouteOriginal}
	if m.Key == m.Exchange && !slices.ContainsFunc(r.all.Exchanges, func(x topology.Exchange) bool { return x.Name == m.Exchange }) {
		to.Target = failed.Target{RoutingKey: m.Key}
	}
	reached, err := r.all.Reach(to.Exchange, to.RoutingKey)
	switch {
	case err != nil:
		return route{}, fmt.Errorf("%w; %w", errUnknownQueue, err)
	case len(reached) != 1 || reached[0] == m.FailedQueue:
		return route{}, fmt.Errorf("%w; exchange %s routes the key %s to %d queues", errUnknownQueue, brief.Quoted(m.Exchange), brief.Quoted(m.Key), len(reached))
	}
	to.Queue = reached[0]
	return to, nil
}

// ask calls Bindings if the latest result is older than maxBindingsAge.
func (r *router) ask(ctx context.Context) error {
	if !r.asked.IsZero() && (r.Bindings == nil || time.Since(r.asked) < maxBindingsAge) {
		return nil
	}
	r.all, r.live, r.err, r.found = r.declared, false, nil, map[store.Origin]route{}
	if r.Bindings != nil {
		all, err := r.Bindings(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			r.all, r.live = all, true
		default:
			r.err = err
			r.log.Warn("cannot read bindings", "error", err, "next_try", maxBindingsAge)
		}
	}
	r.asked = time.Now()
	return nil
}

func (r *router) find(m store.Origin) route {
	if m.Exchange == "" && m.Key == m.FailedQueue && m.Key != m.Queue {
		m.Key = "" // published to the failed queue: the original key is unknown
	}
	designed := r.designed(m.Queue)
	keyless := m.Key == m.Queue || m.Exchange == "" && m.Key == "" // the key does not identify a binding
	byName := route{Target: failed.Target{RoutingKey: m.Queue}, Queue: m.Queue, Route: RouteOriginal}
	if designed == "" && m.Exchange == "" && m.Key == m.Queue {
		return byName // the publisher used this route
	}
	var why error
	for exchange := range r.candidates(m, designed, keyless) {
		err := r.leadsOnlyTo(m.Queue, exchange, m.Key)
		if err == nil {
			return route{Target: failed.Target{Exchange: exchange, RoutingKey: m.Key}, Queue: m.Queue, Route: learnt(exchange, m.Exchange, designed)}
		}
		why = cmp.Or(why, err)
	}
	if key, ok := r.onlyKey(designed, m.Queue); ok && keyless {
		return route{Target: failed.Target{Exchange: designed, RoutingKey: key}, Queue: m.Queue, Route: RouteLearnt + "the only key of the design"}
	}
	if designed == "" && r.known(m.Queue) {
		byName.Route = RouteLearnt + "the worker, whose retries return by queue name"
		return byName
	}
	byName.Route, byName.Warning = RouteAssumed, r.warning(m, why)
	if m.Exchange != "" || r.throughExchange(m.Queue) {
		byName.Route = RouteByName
	}
	return byName
}

// throughExchange reports whether messages are known to reach a queue through an exchange.
func (r *router) throughExchange(queue string) bool {
	return r.designed(queue) != "" || len(r.before(queue)) > 0
}

// learnt returns how the router knows the exchange of a route.
func learnt(exchange, original, designed string) string {
	switch exchange {
	case original:
		return RouteOriginal
	case designed:
		return RouteLearnt + "the design of the worker"
	}
	return RouteLearnt + "the bindings"
}

// deadLetters reports whether the arguments of a queue and the bindings prove that the queue dead-letters to the failed queue.
func (r *router) deadLetters(ctx context.Context, queue, failedQueue string) bool {
	if r.Queue == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pair := [2]string{queue, failedQueue}
	proven, known := r.dead[pair]
	if known || r.ask(ctx) != nil {
		return proven
	}
	if q, err := r.Queue(ctx, queue); err == nil {
		exchange, set := q.Args["x-dead-letter-exchange"].(string)
		key, _ := q.Args["x-dead-letter-routing-key"].(string)
		proven = set && (exchange == "" && key == failedQueue || exchange != "" && r.live && slices.Contains(r.before(failedQueue), exchange))
	}
	if r.dead == nil || len(r.dead) >= maxFound {
		r.dead = map[[2]string]bool{}
	}
	r.dead[pair] = proven
	return proven
}

// designed returns the exchange through which retries return to a work queue, or "" if the strategy does not use an
// exchange.
func (r *router) designed(queue string) string {
	for _, w := range r.Workers {
		if exchange, ok := w.Strategy.Return(); ok && w.Queue == queue {
			return exchange
		}
	}
	return ""
}

// known reports whether the worker of a queue is known.
func (r *router) known(queue string) bool {
	return slices.ContainsFunc(r.Workers, func(w reprise.WorkerConfig) bool { return w.Queue == queue })
}

// candidates yields the exchanges through which a message may return, in order of preference.
func (r *router) candidates(m store.Origin, designed string, keyless bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if designed != "" && !yield(designed) || !r.live {
			return
		}
		if m.Exchange != "" && m.Exchange != designed && !yield(m.Exchange) || keyless {
			return
		}
		others := slices.DeleteFunc(r.before(m.Queue), func(x string) bool {
			return x == designed || x == m.Exchange || r.leadsOnlyTo(m.Queue, x, m.Key) != nil
		})
		if len(others) == 1 {
			yield(others[0])
		}
	}
}

// before returns the exchanges from which bindings lead to a queue, directly or through other exchanges, with any key.
func (r *router) before(queue string) (exchanges []string) {
	for grown := true; grown; {
		grown = false
		for _, b := range r.all.Bindings {
			leads := b.Queue == queue && queue != "" || slices.Contains(exchanges, b.ToExchange)
			if leads && !slices.Contains(exchanges, b.Exchange) {
				exchanges, grown = append(exchanges, b.Exchange), true
			}
		}
	}
	return exchanges
}

// leadsOnlyTo returns nil if an exchange routes a key to the given queue and to no other queue. Otherwise it returns
// the reason.
func (r *router) leadsOnlyTo(queue, exchange, key string) error {
	for _, x := range r.all.Exchanges {
		if x.Name == exchange && x.Internal {
			return fmt.Errorf("exchange %s is internal", brief.Quoted(exchange))
		}
	}
	reached, err := r.all.Reach(exchange, key)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(reached, func(name string) bool { return name == queue })
	switch {
	case len(others) == len(reached):
		return fmt.Errorf("exchange %s does not route the original key to %s", brief.Quoted(exchange), brief.Quoted(queue))
	case len(others) > 0:
		return fmt.Errorf("exchange %s also routes the original key to %s", brief.Quoted(exchange), brief.Quoted(others[0]))
	}
	return nil
}

// onlyKey returns the key that an exchange routes to the given queue and to no other queue. It reports false unless
// there is exactly one such key.
func (r *router) onlyKey(exchange, queue string) (string, bool) {
	var keys []string
	for _, b := range r.all.Bindings {
		if b.Exchange == exchange && b.Queue == queue && !slices.Contains(keys, b.RoutingKey) && !strings.ContainsAny(b.RoutingKey, "*#") {
			keys = append(keys, b.RoutingKey)
		}
	}
	if len(keys) != 1 || exchange == "" || r.leadsOnlyTo(queue, exchange, keys[0]) != nil {
		return "", false
	}
	return keys[0], true
}

// errNoBindings is the reason in a warning if the bindings of a queue are not known.
var errNoBindings = errors.New("neither a management API nor a preset shows an exchange that routes to this queue")

// warning describes the effect of sending a message to its queue by name. It does not contain the routing key of the
// message, because each message may have a different key, and equal warnings are grouped.
func (r *router) warning(m store.Origin, why error) string {
	was := "the original key is unknown"
	if m.Exchange != "" || m.Key != "" {
		was = "not the original key"
	}
	switch {
	case why != nil:
	case r.err != nil:
		why = fmt.Errorf("cannot read the bindings: %w", r.err)
	case r.live:
		why = fmt.Errorf("no exchange routes the original key only to %s", brief.Quoted(m.Queue))
	default:
		why = errNoBindings
	}
	return fmt.Sprintf("consumers see the routing key %s, %s; a consumer that republishes with this key may lose the message (%v)", brief.Quoted(m.Queue), was, why)
}

// warnedQueues contains the queues for which a Warning was logged.
type warnedQueues map[string]bool

// first reports whether the Warning of a route was not logged yet, and marks it as logged.
func (w *warnedQueues) first(to route) bool {
	if to.Warning == "" || (*w)[to.Queue] {
		return false
	}
	if *w == nil {
		*w = warnedQueues{}
	}
	(*w)[to.Queue] = true
	return true
}

// errUnknownQueue is returned if the work queue of a message is not known. Publishing the message to the failed queue
// would archive it again, and no worker would receive it.
var errUnknownQueue = errors.New("queue in which the message failed is unknown (set a destination)")

// isDivided reports whether a message is unroutable because its target is a work queue of which only the partitions or lanes exist,
// and the message failed in one of them. It returns to this one.
func isDivided(err error, m *reprise.Message, failedIn string) bool {
	return errors.Is(err, reprise.ErrUnroutable) && m.Exchange == "" && failedIn != m.RoutingKey && amqpvalue.WorkQueue(failedIn) == m.RoutingKey
}

// to returns the route of a message to the target or, if target is nil, to the queue in which the message failed. All
// replays, redrives and previews use it. The caller sends the message only if route.check permits it.
func (r *router) to(ctx context.Context, m store.Origin, target *failed.Target) (route, error) {
	switch {
	case target != nil && target.Exchange != "":
		return r.toExchange(ctx, *target)
	case target != nil:
		return r.toQueue(ctx, m, target.RoutingKey)
	case m.Queue != "" && m.Queue != m.FailedQueue:
		return r.of(ctx, m)
	case m.Exchange == "":
		return route{}, errUnknownQueue
	}
	return r.toRecorded(ctx, m)
}
