package failed

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
	"github.com/reprisemq/reprise/topology"
)

// Routing is what is known of the way of messages back to their work queues. The zero value
// knows nothing.
//
// A message is sent back through an exchange, with the routing key that it was first published
// with, if it is shown that both lead to its work queue and to no other: a program that knows
// only the published design then handles it, and fails it, as any other. It is shown
//
//   - by Bindings, for the exchange that it was first published to, for the exchange of the
//     queue's worker, or for the only one that leads there;
//   - without Bindings, by the Strategy of the queue's worker, if its retries come back through
//     an exchange, as those of most designs in package preset do: see topology.Strategy.Return.
//
// A message whose key says nothing, since it is the name of the queue or not known, takes the
// only key by which that exchange leads to the queue. Any other message is sent to the queue by
// its name, through the default exchange, with a Destination.Warning. AMQP has no way to ask for bindings.
type Routing struct {
	// Workers are those that messages go back to: their Queue, Strategy and Topology.
	Workers []reprise.WorkerConfig

	// Bindings returns all exchanges and bindings that there are in the virtual host, as the
	// management API lists them. It is asked while messages are sent, at most every 5 s: what
	// somebody binds in between is not seen. If it returns an error, Workers decide. Default:
	// they are not known.
	Bindings func(context.Context) (topology.Topology, error)
}

// way is where a message is sent back to: see Destination.
type way struct {
	Target
	Queue   string // the only one that the Target leads to; "": nothing shows that there is one
	Warning string
}

// maxBindingsAge is how long an answer of Routing.Bindings is used.
const maxBindingsAge = 5 * time.Second

// returns finds the way back of messages. It is safe for concurrent use.
type returns struct {
	Routing
	log      *slog.Logger
	declared topology.Topology // by Workers

	mu    sync.Mutex
	asked time.Time
	live  bool  // the Bindings are known
	err   error // why they are not
	all   topology.Topology
	found map[sentFrom]way
}

// sentFrom is what decides where a message is sent back to.
type sentFrom struct {
	queue, failedQueue string // where it failed, and was taken from
	exchange, key      string // where it was first published, as far as is known
}

func newReturns(r Routing, log *slog.Logger) *returns {
	all := &returns{Routing: r, log: log}
	for _, w := range r.Workers {
		all.declared = all.declared.Merge(w.Strategy.WithDefaults().Route.Topology(w.Queue), w.Topology)
	}
	return all
}

// maxFound bounds what is remembered: keys are the publishers' to choose.
const maxFound = 10_000

// of returns where a message is sent back to. The error is that ctx has ended.
func (r *returns) of(ctx context.Context, m sentFrom) (way, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ask(ctx); err != nil {
		return way{}, err
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

// toAll returns the way to what is named for all messages.
func (r *returns) toAll(ctx context.Context, to Target) (way, error) {
	if to.Exchange == "" {
		return way{Target: to, Queue: to.RoutingKey}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ask(ctx); err != nil {
		return way{}, err
	}
	w := way{Target: to}
	if reached, err := r.all.Reach(to.Exchange, to.RoutingKey); err == nil && r.live && len(reached) == 1 {
		w.Queue = reached[0]
	}
	return w, nil
}

// ask asks for the bindings, if they are too old.
func (r *returns) ask(ctx context.Context) error {
	if !r.asked.IsZero() && (r.Bindings == nil || time.Since(r.asked) < maxBindingsAge) {
		return nil
	}
	r.all, r.live, r.err, r.found = r.declared, false, nil, map[sentFrom]way{}
	if r.Bindings != nil {
		all, err := r.Bindings(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			r.all, r.live = all, true
		default:
			r.err = err
			r.log.Warn("bindings cannot be read", "error", err, "next_try", maxBindingsAge)
		}
	}
	r.asked = time.Now()
	return nil
}

func (r *returns) find(m sentFrom) way {
	if m.exchange == "" && m.key == m.failedQueue {
		m.key = "" // it is not known
	}
	designed := r.designed(m.queue)
	mute := m.key == m.queue || m.exchange == "" && m.key == "" // the key says nothing
	byName := way{Target: Target{RoutingKey: m.queue}, Queue: m.queue}
	if designed == "" && m.exchange == "" && m.key == m.queue {
		return byName // as it was published
	}
	var why error
	for exchange := range r.candidates(m, designed, mute) {
		err := r.leadsOnlyTo(m.queue, exchange, m.key)
		if err == nil {
			return way{Target: Target{exchange, m.key}, Queue: m.queue}
		}
		why = cmp.Or(why, err)
	}
	if key, ok := r.onlyKey(designed, m.queue); ok && mute {
		return way{Target: Target{designed, key}, Queue: m.queue}
	}
	byName.Warning = r.warning(m, why)
	return byName
}

// designed is the exchange that retries of a work queue come back through; "": none.
func (r *returns) designed(queue string) string {
	for _, w := range r.Workers {
		if exchange, ok := w.Strategy.Return(); ok && w.Queue == queue {
			return exchange
		}
	}
	return ""
}

// candidates yields exchanges through which a message may be sent back, the best first.
func (r *returns) candidates(m sentFrom, designed string, mute bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if designed != "" && !yield(designed) || !r.live {
			return
		}
		if m.exchange != "" && m.exchange != designed && !yield(m.exchange) || mute {
			return
		}
		others := slices.DeleteFunc(r.before(m.queue), func(x string) bool {
			return x == designed || x == m.exchange || r.leadsOnlyTo(m.queue, x, m.key) != nil
		})
		if len(others) == 1 {
			yield(others[0])
		}
	}
}

// before returns the exchanges from which bindings lead to a queue, by whatever key.
func (r *returns) before(queue string) (exchanges []string) {
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

// leadsOnlyTo returns why an exchange and a key do not lead to a queue alone.
func (r *returns) leadsOnlyTo(queue, exchange, key string) error {
	for _, x := range r.all.Exchanges {
		if x.Name == exchange && x.Internal {
			return fmt.Errorf("exchange %q is internal", exchange)
		}
	}
	reached, err := r.all.Reach(exchange, key)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(reached, func(name string) bool { return name == queue })
	switch {
	case len(others) == len(reached):
		return fmt.Errorf("the original key does not lead from exchange %q to %q", exchange, queue)
	case len(others) > 0:
		return fmt.Errorf("the original key leads from exchange %q to %q as well", exchange, others[0])
	}
	return nil
}

// onlyKey returns the key by which an exchange leads to a queue alone, if there is one only.
func (r *returns) onlyKey(exchange, queue string) (string, bool) {
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

// errNoBindings is why nothing is known of a queue's bindings.
var errNoBindings = errors.New("no management API and no preset shows an exchange that leads there")

// warning says what is different for a message that is sent to its queue by name. It
// has nothing of the message's key in it, of which there may be one for each message.
func (r *returns) warning(m sentFrom, why error) string {
	was := "the original key is not known"
	if m.exchange != "" || m.key != "" {
		was = "not the original key"
	}
	switch {
	case why != nil:
	case r.err != nil:
		why = fmt.Errorf("cannot read the bindings: %w", r.err)
	case r.live:
		why = fmt.Errorf("no exchange leads to %q, and to no other queue, by the original key", m.queue)
	default:
		why = errNoBindings
	}
	return fmt.Sprintf("other programs see routing key %q, %s; one that republishes under that key may lose the message (%v)", m.queue, was, why)
}

// warned are the queues of which a Warning has been logged.
type warned map[string]bool

// first reports whether a way has a Warning that is to be logged.
func (w *warned) first(to way) bool {
	if to.Warning == "" || (*w)[to.Queue] {
		return false
	}
	if *w == nil {
		*w = warned{}
	}
	(*w)[to.Queue] = true
	return true
}
