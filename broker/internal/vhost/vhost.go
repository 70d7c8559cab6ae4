// Package vhost implements virtual hosts with exchanges, queues and bindings, and the routing of messages.
//
// If a client causes an error, the error is an *[exception.Error] with RabbitMQ's code and text for the wire.
//
// There are two main locks. The lock VHost.change serializes changes to the topology, so that a check and the subsequent
// change are atomic. The lock VHost.mu guards only the maps. VHost.mu is never held during a call to a queue, because
// queues publish their dead letters through the virtual host, possibly during a change. Only the removal of an exchange ends
// the queue of its delayed messages under VHost.mu.
package vhost

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/clock"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// VHost is a virtual host. It is safe for concurrent use.
type VHost struct {
	name   string
	config Config
	log    *slog.Logger

	messages stats.Totals

	deadLetters deadLetterSender
	reading     sync.WaitGroup // counts goroutines that read messages from disk

	change   sync.Mutex         // held during a change of the topology
	registry *registry.Registry // saves changes; nil if they are not saved
	store    store.Store        // saves messages of new queues; nil in memory
	loading  bool               // objects are being loaded from the registry

	sizes sync.Mutex                  // guards the memory accounting; locked after all other locks
	ended bool                        // memory is no longer counted
	size  int64                       // memory of the objects without an owner
	owned map[any]map[*Queue]struct{} // exclusive queues by owner, including deleted queues that are still counted

	mu     lock // guards the maps; locked after change
	routes *route.Table[*Queue]
	queues map[string]*Queue
	about  About
	// Changed under change and mu:
	policies, operatorPolicies policies
	exchangePolicies           map[string]Applied // by exchange; without exchanges to which no policy applies

	histories map[*route.Exchange[*Queue]]*history

	varying atomic.Int64 // number of exchanges for which [route.Kind.Varies]
}

// Config contains the settings that all virtual hosts of a broker share.
type Config struct {
	Log       *slog.Logger
	Clock     *clock.Clock                    // of TTLs and delays; nil: real time
	Meter     *queue.Meter                    // accounts for the memory of messages
	MaxQueues int                             // 0 means no limit
	Limits    func(vhost string) quota.Limits // limits set by an operator; may be nil
	Stats     *stats.Node                     // counts queues and dead letters; may be nil
	Topology  *budget.Limit                   // limits the memory of objects without an owner; nil means no limit

	ExchangeDeleted func(vhost, exchange string) // called after each deletion, with locks held; may be nil

	// Store saves messages, and Registry saves declarations. Both are nil for an in-memory broker.
	Store    store.Store
	Registry *registry.Registry
	// Resident is the memory in bytes for messages that could also wait in the store.
	Resident int64
}

// New returns a virtual host with the predeclared exchanges.
func New(name string, config Config) *VHost {
	v := newVHost(name, config)
	v.registry = config.Registry
	v.saveHost(About{})
	return v
}

func newVHost(name string, config Config) *VHost {
	if config.Limits == nil {
		config.Limits = func(string) quota.Limits { return nil }
	}
	if config.Stats == nil {
		config.Stats = new(stats.Node)
	}
	if config.ExchangeDeleted == nil {
		config.ExchangeDeleted = func(string, string) {}
	}
	v := &VHost{
		name:   name,
		config: config,
		log:    config.Log.With("vhost", name),
		store:  config.Store,
		routes: route.NewTable[*Queue](),
		queues: make(map[string]*Queue),
		owned:  make(map[any]map[*Queue]struct{}),

		deadLetters: deadLetterSender{clock: config.Clock},

		policies: make(policies), operatorPolicies: make(policies), exchangePolicies: make(map[string]Applied),
		histories: make(map[*route.Exchange[*Queue]]*history),
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
	// RabbitMQ publishes traced messages to this exchange. This broker does not support tracing, but programs may bind to
	// the exchange.
	v.routes.Add(route.Exchange[*Queue]{
		Name: "amq.rabbitmq.trace", Kind: route.Topic, Durable: true, Internal: true, Arguments: amqpwire.Table(nil),
	})
	v.routes.Unbound, v.routes.Deleted, v.routes.QueueName = v.unbound, v.exchangeDeleted, (*Queue).Name
	return v
}

// Name returns the name of the virtual host.
func (v *VHost) Name() string { return v.name }

// Publish routes a message and delivers it to the queues. It returns the number of queues and reports whether all of them
// accepted the message. It waits until the message is durable in the queues that save it. It returns an error if the
// exchange is missing, but not if no queue matches.
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

// Route appends the destination queues of a message to dst. It does not publish the message; see Deliver.
func (v *VHost) Route(dst []*Queue, m *queue.Message) ([]*Queue, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.routes.Exchange(m.Exchange)
	if err := v.publishable(x, m.Exchange); err != nil {
		return nil, err
	}
	return v.route(dst, x, m), nil
}

// Deliver publishes a message to the given queues, usually the queues that Route returned. It reports whether all
// queues accepted the message, and returns the ticket of the commit after which the message is durable in all queues
// that save it.
//
// Deliver drops the decoded headers, because they need many times the memory of the encoded headers, and routing is
// complete.
func Deliver(m *queue.Message, queues []*Queue) (accepted bool, ticket store.Ticket) {
	accepted = true
	m.Headers = nil
	for _, q := range queues {
		ok, t := q.Publish(m)
		accepted, ticket = accepted && ok, max(ticket, t)
	}
	return accepted, ticket
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

// publishDead publishes a dead letter; see [queue.Config]. It ignores a missing exchange, because no client receives the
// error.
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
				v.log.Debug("dead letter dropped: cycle of dead letter exchanges without a rejection", "queue", q.Name(), "reason", reason)
			}
			return circle
		})
	}
	routed = len(queues) > 0
	if only != nil { // the other queues already have the message
		queues = slices.DeleteFunc(queues, func(q *Queue) bool { return !slices.Contains(only, q.Name()) })
	}
	return offer(m, queues), routed
}

// offer publishes a message to queues, and returns the names of those that refused it.
func offer(m *queue.Message, queues []*Queue) (refused []string) {
	for _, q := range queues {
		if accepted, _ := q.Publish(m); !accepted {
			refused = append(refused, q.Name())
		}
	}
	return refused
}

// route appends the queues for all keys of the message to dst. The default exchange has no bindings, and routes to
// the queue whose name equals the key.
func (v *VHost) route(dst []*Queue, x *route.Exchange[*Queue], m *queue.Message) []*Queue {
	var more []string
	if len(m.CC)+len(m.BCC) > 0 {
		more = slices.Concat(m.CC, m.BCC)
	}
	if x.Name != "" {
		return v.routes.Route(dst, x, route.Message{Key: m.RoutingKey, More: more, Headers: m.Headers, Source: m})
	}
	dst = v.routeToName(dst, m.RoutingKey)
	for _, key := range more {
		dst = v.routeToName(dst, key)
	}
	return dst
}

func (v *VHost) routeToName(dst []*Queue, name string) []*Queue {
	q := v.queues[name]
	if q == nil && isReply(name) {
		q = v.deletedReply(name)
	}
	if q != nil && !slices.Contains(dst, q) {
		dst = append(dst, q)
	}
	return dst
}

// Close closes all queues, stops dead-lettering, and waits for all goroutines of the virtual host. It does not affect the
// data on disk.
func (v *VHost) Close() {
	v.end((*queue.Queue).Close)
}

// Forget removes the virtual host and all its objects from the registry. Later changes are not saved.
func (v *VHost) Forget() {
	v.change.Lock()
	defer v.change.Unlock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.deleteSavedAll()
	v.store = nil
}

// Delete deletes all queues with their messages. Call it instead of Close, after Forget.
func (v *VHost) Delete() {
	v.end(func(q *queue.Queue) { q.Delete(queue.Condition{}) })
}

// end stops dead-lettering, because closed and deleted queues do not accept messages, and then calls its argument for
// each queue.
func (v *VHost) end(end func(*queue.Queue)) {
	v.deadLetters.close()
	v.change.Lock()
	v.registry, v.store = nil, nil
	v.mu.Lock()
	queues := v.queues
	v.queues = make(map[string]*Queue)
	for x := range v.routes.Exchanges() {
		if x.Waiting != nil {
			end(x.Waiting.Queue)
		}
	}
	for _, h := range v.histories {
		h.clear()
	}
	v.mu.Unlock()
	v.freeAll(queues)
	for _, q := range queues {
		end(q.Queue)
		q.deleted = true // for callers that still refer to the queue
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
