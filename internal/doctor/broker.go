package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/pcre"
	"github.com/reprisemq/reprise/topology"
)

// Broker is what the rules know about a broker.
type Broker struct {
	Version     string // of RabbitMQ; "" if it is unknown
	Nodes       int    // 0: unknown
	Listeners   []Listener
	VHosts      []VHost
	Queues      []Queue
	Exchanges   []Exchange
	Bindings    []Binding
	Policies    []Policy
	Users       []User
	Consumers   []Consumer
	Channels    []Channel
	Connections []Connection
	Deprecated  []string // used features
	Handlers    []Handler
	Alarms      []string

	own     string          // virtual host of objects without one
	has     map[string]bool // lists that were read
	indexed index
}

// Listener is a listener of a node.
type Listener struct {
	Protocol string `json:"protocol"` // such as "amqp" or "amqp/ssl"
	Port     int    `json:"port"`
}

// VHost is a virtual host.
type VHost struct {
	Name      string
	QueueType string // type of queues that are declared without a type; "" if it is unknown
}

// Queue is a queue. The counts are zero in definitions.
type Queue struct {
	Name, VHost                    string
	Kind                           string // "classic", "quorum" or "stream"
	Durable, AutoDelete, Exclusive bool
	Args                           map[string]any // of the declaration
	Policy                         map[string]any // effective definition of its policies
	PolicyName                     string
	Ready, Messages, Bytes         int64
	Consumers                      int64
	Counted                        bool  // whether the broker reported the number of consumers
	Taken                          int64 // messages that consumers have taken since the broker started
	Members, Online                int   // of a quorum queue; 0: unknown
}

// Exchange is an exchange.
type Exchange struct {
	Name, VHost, Kind             string
	Durable, AutoDelete, Internal bool
	Args                          map[string]any
	Alternate                     string // of the arguments or of a policy
	PolicyName                    string
}

// Binding is a binding. The default exchange has none.
type Binding struct {
	VHost, Source, Destination, Kind, Key string
	Args                                  map[string]any
}

// Policy is a policy or an operator policy.
type Policy struct {
	Name, VHost, Pattern, ApplyTo string
	Priority                      float64
	Definition                    map[string]any
	Operator                      bool

	pattern *pcre.Regexp
}

// User is a user.
type User struct {
	Name string
	Tags []string
}

// Consumer is a consumer of a queue.
type Consumer struct {
	VHost, Queue string
	Ack          bool
	Prefetch     int64
	Priority     int64
}

// Channel is a channel.
type Channel struct {
	Name, VHost, User string
	GlobalPrefetch    int64
}

// Connection is a connection.
type Connection struct {
	Name, User, Host, State string
}

// Handler is a handler of a configuration.
type Handler struct {
	VHost, Queue string
	Timeout      time.Duration // 0: none
}

// SetHandlers adds the handlers of a configuration.
func (b *Broker) SetHandlers(all []Handler) { b.Handlers, b.has[handlers] = all, true }

// Get returns the effective value of the setting x-key or key of a queue: of its argument or of its policies.
func (q *Queue) Get(key string) (value any, found bool) {
	return mgmtapi.Effective(q.Kind, q.Args, q.Policy, key)
}

func (q *Queue) text(key string) string {
	v, _ := q.Get(key)
	s, _ := v.(string)
	return s
}

func (q *Queue) limit(key string) (int64, bool) {
	v, _ := q.Get(key)
	return mgmtapi.Integer(v)
}

// deadLetter returns the exchange and the routing key of dead letters. keyed is false if they keep their own keys.
func (q *Queue) deadLetter() (exchange, key string, keyed, found bool) {
	v, found := q.Get("dead-letter-exchange")
	exchange, _ = v.(string)
	v, keyed = q.Get("dead-letter-routing-key")
	key, _ = v.(string)
	return exchange, key, keyed, found
}

// waits reports whether messages wait in the queue for their TTL and then leave it.
func (q *Queue) waits() bool {
	_, _, _, dead := q.deadLetter()
	_, ttl := q.limit("message-ttl")
	return dead && ttl
}

func (q *Queue) String() string    { return "queue " + q.Name }
func (x *Exchange) String() string { return "exchange " + cmp.Or(x.Name, "(default)") }
func (p *Policy) String() string {
	if p.Operator {
		return "operator policy " + p.Name
	}
	return "policy " + p.Name
}

// atLeast reports whether the broker has at least a version, such as "4.3".
func (b *Broker) atLeast(version string) bool {
	return topology.Topology{Needs: version}.For(b.Version) == nil
}

// object identifies a queue or an exchange.
type object struct{ vhost, name string }

// index is computed once, because many rules follow dead letters.
type index struct {
	queues    map[object]*Queue
	exchanges map[object]*Exchange
	targets   map[*Queue][]string // queues that receive dead letters, also missing ones; no entry if they are unknown
	feeding   map[*Queue][]*Queue // queues whose dead letters a queue receives
}

func (b *Broker) index() {
	b.indexed = index{map[object]*Queue{}, map[object]*Exchange{}, map[*Queue][]string{}, map[*Queue][]*Queue{}}
	for i := range b.Exchanges {
		x := &b.Exchanges[i]
		b.indexed.exchanges[object{x.VHost, x.Name}] = x
	}
	for i := range b.Queues {
		q := &b.Queues[i]
		b.indexed.queues[object{q.VHost, q.Name}] = q
	}
	routes := map[string]topology.Topology{}
	for i := range b.Queues {
		q := &b.Queues[i]
		if _, found := routes[q.VHost]; !found {
			routes[q.VHost] = b.Routes(q.VHost)
		}
		targets, known := b.deadLetterTargets(q, routes[q.VHost])
		if !known {
			continue
		}
		b.indexed.targets[q] = targets
		for _, name := range targets {
			if to := b.Queue(q.VHost, name); to != nil && to != q {
				b.indexed.feeding[to] = append(b.indexed.feeding[to], q)
			}
		}
	}
}

// Queue returns a queue, or nil if it does not exist.
func (b *Broker) Queue(vhost, name string) *Queue { return b.indexed.queues[object{vhost, name}] }

// Exchange returns an exchange, or nil if it does not exist. Definitions do not contain predeclared exchanges.
func (b *Broker) Exchange(vhost, name string) *Exchange {
	return b.indexed.exchanges[object{vhost, name}]
}

// HasExchange reports whether an exchange exists, which may be predeclared.
func (b *Broker) HasExchange(vhost, name string) bool {
	return name == "" || strings.HasPrefix(name, "amq.") || b.Exchange(vhost, name) != nil
}

// DefaultQueueType returns the type of queues that are declared without a type, or "" if it is unknown.
func (b *Broker) DefaultQueueType(vhost string) string {
	for _, v := range b.VHosts {
		if v.Name == vhost {
			return v.QueueType
		}
	}
	return ""
}

// Dead returns the queues that receive dead letters of q, and the queues whose dead letters q receives.
func (b *Broker) Dead(q *Queue) (to, from []*Queue) {
	return b.deadLettering(q), b.indexed.feeding[q]
}

// Routes returns the exchanges and bindings of a virtual host.
func (b *Broker) Routes(vhost string) topology.Topology {
	var t topology.Topology
	for _, x := range b.Exchanges {
		if x.VHost == vhost && x.Name != "" {
			args := topology.Table{}
			if x.Alternate != "" {
				args["alternate-exchange"] = x.Alternate
			}
			t.Exchanges = append(t.Exchanges, topology.Exchange{Name: x.Name, Kind: x.Kind, Args: args})
		}
	}
	for _, e := range b.Bindings {
		if e.VHost != vhost || e.Source == "" {
			continue
		}
		one := topology.Binding{Exchange: e.Source, RoutingKey: e.Key, Queue: e.Destination}
		if e.Kind == "exchange" {
			one.Queue, one.ToExchange = "", e.Destination
		}
		t.Bindings = append(t.Bindings, one)
	}
	return t
}

// keys returns the routing keys with which messages enter a queue: the queue's name, through the default exchange, and the keys
// of its bindings. A pattern of a topic exchange is not a key.
func (b *Broker) keys(q *Queue) []string {
	all := []string{q.Name}
	for _, e := range b.Bindings {
		if e.VHost == q.VHost && e.Kind == "queue" && e.Destination == q.Name && e.Source != "" && !strings.ContainsAny(e.Key, "*#") {
			all = append(all, e.Key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// deadLetterTargets returns the queues that receive dead letters of q, and whether they are known.
func (b *Broker) deadLetterTargets(q *Queue, routes topology.Topology) (targets []string, known bool) {
	exchange, key, keyed, found := q.deadLetter()
	if !found {
		return nil, true
	}
	if exchange == "" && !keyed && amqpvalue.IsWaitQueue(q.Name) {
		return nil, false // the routing keys are the names of lanes
	}
	keys := []string{key}
	if !keyed {
		keys = b.keys(q)
	}
	for _, key := range keys {
		some, err := routes.Reach(exchange, key)
		if err != nil {
			return nil, false
		}
		targets = append(targets, some...)
	}
	slices.Sort(targets)
	return slices.Compact(targets), true
}

// compilePatterns compiles the patterns of all policies.
func (b *Broker) compilePatterns() error {
	for i := range b.Policies {
		p := &b.Policies[i]
		var err error
		if p.pattern, err = pcre.Compile(p.Pattern, false); err != nil {
			return fmt.Errorf("%v: cannot evaluate its pattern: %w", p, err)
		}
	}
	return nil
}

// applyToQueues sets the effective policies of queues that have none yet. The management API returns them, except of new queues,
// and definitions do not contain them.
func (b *Broker) applyToQueues() {
	for i := range b.Queues {
		q := &b.Queues[i]
		if q.Policy != nil {
			continue
		}
		q.Policy, q.PolicyName = b.PolicyOf(q.VHost, q.Name, q.Kind)
	}
}

// PolicyOf returns the effective definition of the policies that apply to a queue of a kind, such as "quorum", and the name of its
// policy that is not an operator policy. The queue need not exist.
func (b *Broker) PolicyOf(vhost, queue, kind string) (definition map[string]any, name string) {
	definition = map[string]any{}
	for _, operator := range []bool{false, true} {
		p := b.policyFor(vhost, queue, operator, "all", "queues", kind+"_queues")
		if p == nil {
			continue
		}
		if !operator {
			name = p.Name
		}
		for key, value := range p.Definition {
			n, limit := mgmtapi.Integer(value)
			was, both := mgmtapi.Integer(definition[key])
			if limit && both {
				value = min(n, was)
			}
			definition[key] = value
		}
	}
	return definition, name
}

// applyToExchanges sets the policies of exchanges, and the alternate exchanges of these policies, which neither the management
// API nor definitions return.
func (b *Broker) applyToExchanges() {
	for i := range b.Exchanges {
		x := &b.Exchanges[i]
		p := b.policyFor(x.VHost, x.Name, false, "all", "exchanges")
		if p == nil {
			continue
		}
		x.PolicyName = p.Name
		if x.Alternate == "" {
			x.Alternate, _ = p.Definition["alternate-exchange"].(string)
		}
	}
}

func (b *Broker) policyFor(vhost, name string, operator bool, targets ...string) (best *Policy) {
	for i := range b.Policies {
		p := &b.Policies[i]
		if p.VHost != vhost || p.Operator != operator || !slices.Contains(targets, cmp.Or(p.ApplyTo, "all")) {
			continue
		}
		if p.pattern.MatchString(name) && (best == nil || p.Priority > best.Priority) {
			best = p
		}
	}
	return best
}
