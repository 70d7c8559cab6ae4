// Package vhost is a virtual host: its exchanges, queues and bindings, and the way of a message through them.
//
// What clients do wrong comes back as an *[exception.Error] with RabbitMQ's code and text, ready for the wire.
//
// Two locks keep it simple. One makes changes of the topology wait for each other, so that a check and the change that
// rests on it are one step. The other guards the maps alone and is never held while a queue is called: queues publish
// their dead letters through here, possibly in the middle of a change.
package vhost

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// VHost is a virtual host. Its methods may be called at the same time.
type VHost struct {
	name   string
	config Config
	log    *slog.Logger

	messages stats.Totals

	letters letters
	reading sync.WaitGroup // messages from disk

	change   sync.Mutex         // held throughout a change of the topology
	registry *registry.Registry // told of it; nil: it is not to be kept
	store    store.Store        // of queues that are declared; nil: they are in memory only
	loading  bool               // from the registry

	sizes sync.Mutex                  // guards what is counted; taken after all others
	ended bool                        // the topology is not counted any more
	size  int64                       // of what outlives connections
	owned map[any]map[*Queue]struct{} // exclusive queues by owner, deleted ones as long as they are counted

	mu     lock // guards the maps; taken after change
	routes *route.Table[*Queue]
	queues map[string]*Queue
	about  About
}

// Config is what the virtual hosts of a broker have in common.
type Config struct {
	Log       *slog.Logger
	Meter     *queue.Meter  // told of the memory that messages take
	MaxQueues int           // zero: no limit
	Stats     *stats.Node   // told of queues and dead letters; nil: nobody wants to know
	Topology  *budget.Limit // for the memory of what outlives connections; nil: no limit

	// Store has the messages, and Registry what was declared; nil: they are in memory only.
	Store    store.Store
	Registry *registry.Registry
	// Resident is how much memory messages may take that are in the store as well.
	Resident int64
}

// New returns a virtual host with the exchanges that every one has.
func New(name string, config Config) *VHost {
	v := newVHost(name, config)
	v.registry = config.Registry
	v.keepHost(About{})
	return v
}

func newVHost(name string, config Config) *VHost {
	if config.Stats == nil {
		config.Stats = new(stats.Node)
	}
	v := &VHost{
		name:   name,
		config: config,
		log:    config.Log.With("vhost", name),
		store:  config.Store,
		routes: route.NewTable[*Queue](),
		queues: make(map[string]*Queue),
		owned:  make(map[any]map[*Queue]struct{}),
	}
	for name, kind := range map[string]route.Kind{
		"":            route.Direct,
		"amq.direct":  route.Direct,
		"amq.fanout":  route.Fanout,
		"amq.topic":   route.Topic,
		"amq.headers": route.Headers,
		"amq.match":   route.Headers,
	} {
		v.routes.Add(route.Exchange[*Queue]{Name: name, Kind: kind, Durable: true, Arguments: amqpwire.Table(nil)})
	}
	// RabbitMQ publishes here what it traces. There is no tracing, but programs may bind to the exchange.
	v.routes.Add(route.Exchange[*Queue]{
		Name: "amq.rabbitmq.trace", Kind: route.Topic, Durable: true, Internal: true, Arguments: amqpwire.Table(nil),
	})
	v.routes.Unbound, v.routes.Deleted = v.unbound, v.exchangeDeleted
	return v
}

// Name returns the name of the virtual host.
func (v *VHost) Name() string { return v.name }

// Publish routes a message and gives it to the queues. It tells how many there were, and whether all of them accepted
// it, when those that keep it have it on disk. A message for an exchange that does not exist is an error, one for no queue
// is not.
func (v *VHost) Publish(m *queue.Message) (routed int, accepted bool, err error) {
	var buffer [4]*Queue
	queues, err := v.Route(buffer[:0], m)
	if err != nil {
		return 0, false, err
	}
	accepted, kept := Deliver(m, queues)
	if kept > 0 {
		err = v.config.Store.Wait(context.Background(), kept)
	}
	return len(queues), accepted, err
}

// Route is the first half of Publish: it appends the queues that a message goes to.
func (v *VHost) Route(dst []*Queue, m *queue.Message) ([]*Queue, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.routes.Exchange(m.Exchange)
	if err := v.publishable(x, m.Exchange); err != nil {
		return nil, err
	}
	return v.route(dst, x, m), nil
}

// Deliver is the second half of Publish. It reports whether all queues accepted the message, and which commit of the store
// will keep it in all of them that keep it.
//
// Decoded headers take many times the room of encoded ones; they have been routed by, and are not needed any more.
func Deliver(m *queue.Message, queues []*Queue) (accepted bool, kept store.Ticket) {
	accepted = true
	m.Headers = nil
	for _, q := range queues {
		ok, t := q.Publish(m)
		accepted, kept = accepted && ok, max(kept, t)
	}
	return accepted, kept
}

func (v *VHost) publishable(x *route.Exchange[*Queue], name string) error {
	switch {
	case x == nil:
		return v.noExchange(name)
	case x.Internal:
		return exception.New(exception.AccessRefused, "cannot publish to internal %s", v.exchange(name))
	}
	return nil
}

// publishDead is Publish for dead letters, see [queue.Config]: nobody is there to be told of a missing exchange.
func (v *VHost) publishDead(m *queue.Message, reason queue.Reason, only []string) (refused []string, routed bool) {
	v.mu.RLock()
	var queues []*Queue
	if x := v.routes.Exchange(m.Exchange); x != nil {
		queues = v.route(nil, x, m)
	}
	v.mu.RUnlock()

	m.Headers = nil // as in Deliver
	if reason != queue.Rejected {
		queues = slices.DeleteFunc(queues, func(q *Queue) bool {
			circle := m.DiedInCircle(q.Name())
			if circle {
				v.log.Debug("dead letter dropped: it came round in a circle without a rejection", "queue", q.Name(), "reason", reason)
			}
			return circle
		})
	}
	for _, q := range queues {
		if only != nil && !slices.Contains(only, q.Name()) {
			continue // has it already
		}
		if accepted, _ := q.Publish(m); !accepted {
			refused = append(refused, q.Name())
		}
	}
	return refused, len(queues) > 0
}

// route routes by all keys at once. The default exchange has no bindings of its own: each queue is reached by its name.
func (v *VHost) route(dst []*Queue, x *route.Exchange[*Queue], m *queue.Message) []*Queue {
	var more []string
	if len(m.CC)+len(m.BCC) > 0 {
		more = slices.Concat(m.CC, m.BCC)
	}
	if x.Name != "" {
		return v.routes.Route(dst, x, m.RoutingKey, m.Headers, more...)
	}
	dst = v.routeToName(dst, m.RoutingKey)
	for _, key := range more {
		dst = v.routeToName(dst, key)
	}
	return dst
}

func (v *VHost) routeToName(dst []*Queue, name string) []*Queue {
	if q := v.queues[name]; q != nil && !slices.Contains(dst, q) {
		dst = append(dst, q)
	}
	return dst
}

// Close ends everything that runs in the virtual host, and waits for it. What is on disk stays there.
func (v *VHost) Close() {
	v.end((*queue.Queue).Close)
}

// Forget removes the virtual host from the registry, with everything in it. Whatever is still done in it is not kept.
func (v *VHost) Forget() {
	v.change.Lock()
	defer v.change.Unlock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.forget()
	v.store = nil
}

// Delete is Close for a virtual host that was forgotten: it deletes all queues with their messages.
func (v *VHost) Delete() {
	v.end(func(q *queue.Queue) { q.Delete(queue.Condition{}) })
}

// end ends all queues, dead letters first: they would find queues that take nothing any more.
func (v *VHost) end(end func(*queue.Queue)) {
	v.letters.close()
	v.change.Lock()
	v.registry, v.store = nil, nil
	v.mu.Lock()
	queues := v.queues
	v.queues = make(map[string]*Queue)
	v.mu.Unlock()
	v.giveAll(queues)
	for _, q := range queues {
		end(q.Queue)
		q.deleted = true // as far as anybody is concerned who still has it
	}
	v.change.Unlock()
	v.reading.Wait()
}

func (v *VHost) exchange(name string) string {
	return "exchange '" + name + "' in vhost '" + v.name + "'"
}

func (v *VHost) queue(name string) string { return "queue '" + name + "' in vhost '" + v.name + "'" }

func (v *VHost) noExchange(name string) error {
	return exception.New(exception.NotFound, "no %s", v.exchange(name))
}
