package topology

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// Exchange kinds that every broker supports.
const (
	Direct  = "direct"
	Fanout  = "fanout"
	Topic   = "topic"
	Headers = "headers"
)

// Exchange is the declaration of an exchange. If only Name and Kind are set, the exchange is durable
// and exists until a client deletes it.
type Exchange struct {
	Name       string
	Kind       string // Direct, Fanout, Topic, Headers, or the kind of a plugin
	Transient  bool   // deleted when the broker restarts
	AutoDelete bool   // deleted when its last binding is deleted
	Internal   bool   // clients cannot publish to it
	Args       Table
}

// Queue is the declaration of a queue. If only Name is set, the queue is durable, shared, of the
// default type of the broker, and exists until a client deletes it.
type Queue struct {
	Name       string
	Transient  bool // deleted when the broker restarts
	Exclusive  bool // belongs to one connection, and is deleted when the connection closes
	AutoDelete bool // deleted when its last consumer is canceled
	Args       Table

	// IfAbsent declares the queue only if no queue of that name exists. An existing queue remains unchanged, whatever its
	// arguments.
	IfAbsent bool
}

// Binding routes messages from an exchange to a queue or to another exchange. Set exactly one of Queue and ToExchange. The
// source and the destination need not be declared in the same Topology.
type Binding struct {
	Exchange   string
	Queue      string // destination queue
	ToExchange string // destination exchange; https://www.rabbitmq.com/docs/e2e
	RoutingKey string
	Args       Table
}

// String returns the names of the source and the destination.
func (b Binding) String() string {
	if b.ToExchange != "" {
		return b.Exchange + " → exchange " + b.ToExchange
	}
	return b.Exchange + " → " + b.Queue
}

func (b Binding) kind() string {
	if b.ToExchange != "" {
		return "exchange"
	}
	return "queue"
}

// Topology is the set of objects that a broker must have. The zero value is empty.
type Topology struct {
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding

	// NoSchedule contains the exchanges (the zero Key) and the queues (the zero Exchange) to which a client must not
	// schedule messages, because programs behind them cannot read the x-death of a schedule. A client that has declared the
	// topology, or has a worker with it, refuses to schedule to them.
	NoSchedule []Address

	// Needs is the oldest version of RabbitMQ that implements all arguments, such as "4.3.3"; "" permits all versions. The
	// caller must check the version of the broker with Topology.For, because RabbitMQ ignores unknown arguments.
	Needs string
}

// maxName is the maximum length of a name in bytes, because AMQP encodes the length of a short string in one byte.
const maxName = 255

// Validate reports declarations that brokers refuse or change. A name must not be empty or longer than 255 bytes, and must
// not contain a NUL or a line break (RabbitMQ removes line breaks). Only predeclared exchanges and queues with IfAbsent may
// have names that begin with "amq.". An exchange must have a kind. Two declarations of the same exchange or queue must be
// equal. Combinations such as a transient quorum queue are invalid. Validate joins all problems into one error.
func (t Topology) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("topology: "+format, args...)) }
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}

	exchanges := map[string]Exchange{}
	for _, e := range t.Exchanges {
		check(e.validate())
		if other, found := exchanges[e.Name]; found && !e.equal(other) {
			fault("exchange %q must not have two different declarations", e.Name)
		}
		exchanges[e.Name] = e
	}
	queues := map[string]Queue{}
	for _, q := range t.Queues {
		check(q.validate())
		if other, found := queues[q.Name]; found && !q.equal(other) {
			fault("queue %q must not have two different declarations", q.Name)
		}
		queues[q.Name] = q
	}
	for _, b := range t.Bindings {
		check(validateName("binding to exchange", b.Exchange))
		switch {
		case b.Queue != "" && b.ToExchange != "":
			fault("binding of exchange %q must not lead to a queue and an exchange: got %q and %q (declare two bindings)", b.Exchange, b.Queue, b.ToExchange)
		case b.ToExchange != "":
			check(validateName("binding from exchange", b.ToExchange))
		default:
			check(validateName("binding to queue", b.Queue))
		}
		if len(b.RoutingKey) > maxName {
			fault("routing key of the binding of %s %q to exchange %q must have at most %d bytes: got %d", b.kind(), b.Queue+b.ToExchange, b.Exchange, maxName, len(b.RoutingKey))
		}
	}
	if _, ok := parseVersion(t.Needs); t.Needs != "" && !ok {
		fault("Needs must be a version such as \"4.3.3\": got %q", t.Needs)
	}
	return errors.Join(errs...)
}

// Merge returns the union of t and others without duplicates. If a queue is declared both with and
// without IfAbsent, Merge keeps the declaration without it. Merge keeps contradictory declarations; Validate reports them. Merge does not
// change its inputs.
func (t Topology) Merge(others ...Topology) Topology {
	var m Topology
	for _, o := range append([]Topology{t}, others...) {
		for _, e := range o.Exchanges {
			if !slices.ContainsFunc(m.Exchanges, e.equal) {
				m.Exchanges = append(m.Exchanges, e)
			}
		}
		for _, q := range o.Queues {
			m.Queues = mergeQueue(m.Queues, q)
		}
		for _, b := range o.Bindings {
			if !slices.ContainsFunc(m.Bindings, b.equal) {
				m.Bindings = append(m.Bindings, b)
			}
		}
		for _, a := range o.NoSchedule {
			if !slices.Contains(m.NoSchedule, a) {
				m.NoSchedule = append(m.NoSchedule, a)
			}
		}
		m.Needs = newer(m.Needs, o.Needs)
	}
	return m
}

func mergeQueue(queues []Queue, q Queue) []Queue {
	for i, x := range queues {
		switch {
		case x.Name != q.Name:
		case x.IfAbsent && !q.IfAbsent:
			queues[i] = q
			return queues
		case q.IfAbsent, q.equal(x):
			return queues // the earlier declaration takes precedence
		}
	}
	return append(queues, q)
}

// equal reports whether two declarations are equal.
func (e Exchange) equal(x Exchange) bool {
	e.Args, x.Args = normalArgs(e.Args), normalArgs(x.Args)
	return reflect.DeepEqual(e, x)
}

func (q Queue) equal(x Queue) bool {
	q.Args, x.Args = normalArgs(q.Args), normalArgs(x.Args)
	return reflect.DeepEqual(q, x)
}

func (b Binding) equal(x Binding) bool {
	b.Args, x.Args = normalArgs(b.Args), normalArgs(x.Args)
	return reflect.DeepEqual(b, x)
}

// normalArgs makes arguments comparable: nil becomes an empty table, and every integer an int64.
func normalArgs(t Table) Table {
	n := Table{}
	for k, v := range t {
		if i, ok := amqpvalue.Integer(v); ok {
			v = i
		}
		n[k] = v
	}
	return n
}

// with returns a copy of t in which key has the given value.
func (t Table) with(key string, value any) Table {
	t = t.Clone()
	t[key] = value
	return t
}

// Clone returns a shallow copy of t, which the caller may change. The copy shares nested values with t. If t is nil, the
// copy is an empty table.
func (t Table) Clone() Table {
	if t == nil {
		return Table{}
	}
	return maps.Clone(t)
}
