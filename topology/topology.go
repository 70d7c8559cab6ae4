package topology

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// Exchange kinds every broker knows.
const (
	Direct  = "direct"
	Fanout  = "fanout"
	Topic   = "topic"
	Headers = "headers"
)

// Exchange is an exchange as it is declared. Zero value apart from Name and
// Kind: durable, kept until deleted.
type Exchange struct {
	Name       string
	Kind       string // Direct, Fanout, Topic, Headers, or a plugin's
	Transient  bool   // lost when the broker restarts
	AutoDelete bool   // deleted with its last binding
	Internal   bool   // clients cannot publish to it
	Args       Table
}

// Queue is a queue as it is declared. Zero value apart from Name: durable,
// shared, kept until deleted, of the broker's default type.
type Queue struct {
	Name       string
	Transient  bool // lost when the broker restarts
	Exclusive  bool // belongs to one connection and dies with it
	AutoDelete bool // deleted with its last consumer
	Args       Table

	// IfAbsent declares the queue only where no queue of that name exists. One
	// that exists is used as it is, whatever its arguments.
	IfAbsent bool
}

// Binding routes messages from an exchange to a queue, or to another exchange.
// Either end may be something the Topology does not declare.
type Binding struct {
	Exchange   string
	Queue      string // this
	ToExchange string // or that; https://www.rabbitmq.com/docs/e2e
	RoutingKey string
	Args       Table
}

// String names both ends.
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

// Topology is what must exist on a broker. The zero value asks for nothing.
type Topology struct {
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding

	// Needs is the oldest RabbitMQ that does what the arguments say, such as
	// "4.3.3"; "" is any. It must be asked for, see Topology.For: RabbitMQ
	// accepts arguments that it does not know, and does nothing about them.
	Needs string
}

// maxName is the longest name AMQP can carry: a short string's length is one byte.
const maxName = 255

// Validate reports everything that no broker would accept: names that are empty, too
// long, reserved for the broker, or have line breaks, which RabbitMQ leaves out;
// exchanges without a kind; one name with two different declarations; combinations
// such as a transient quorum queue. All findings are joined into one error.
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
		if other, found := exchanges[e.Name]; found && !e.same(other) {
			fault("exchange %q is declared twice and differently: keep one declaration", e.Name)
		}
		exchanges[e.Name] = e
	}
	queues := map[string]Queue{}
	for _, q := range t.Queues {
		check(q.validate())
		if other, found := queues[q.Name]; found && !q.same(other) {
			fault("queue %q is declared twice and differently: keep one declaration", q.Name)
		}
		queues[q.Name] = q
	}
	for _, b := range t.Bindings {
		check(validateOwn("binding to exchange", b.Exchange))
		switch {
		case b.Queue != "" && b.ToExchange != "":
			fault("binding of exchange %q leads both to queue %q and to exchange %q: make two of it", b.Exchange, b.Queue, b.ToExchange)
		case b.ToExchange != "":
			check(validateOwn("binding from exchange", b.ToExchange))
		default:
			check(validateOwn("binding to queue", b.Queue))
		}
		if len(b.RoutingKey) > maxName {
			fault("binding of %s %q to exchange %q has a routing key of %d bytes: at most %d are possible",
				b.kind(), b.Queue+b.ToExchange, b.Exchange, len(b.RoutingKey), maxName)
		}
	}
	if _, ok := parseVersion(t.Needs); t.Needs != "" && !ok {
		fault("Needs %q is no version: write it as \"4.3.3\"", t.Needs)
	}
	return errors.Join(errs...)
}

// Merge returns t and then others as one Topology, each thing once. A queue
// that is only to be declared IfAbsent gives way to a definite declaration of
// the same name. Contradictions are kept, for Validate to report. Neither
// input is changed.
func (t Topology) Merge(others ...Topology) Topology {
	var m Topology
	for _, o := range append([]Topology{t}, others...) {
		for _, e := range o.Exchanges {
			if !slices.ContainsFunc(m.Exchanges, e.same) {
				m.Exchanges = append(m.Exchanges, e)
			}
		}
		for _, q := range o.Queues {
			m.Queues = mergeQueue(m.Queues, q)
		}
		for _, b := range o.Bindings {
			if !slices.ContainsFunc(m.Bindings, b.same) {
				m.Bindings = append(m.Bindings, b)
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
		case q.IfAbsent, q.same(x):
			return queues // the one already there is as definite, or more
		}
	}
	return append(queues, q)
}

// same reports whether two declarations are equal.
func (e Exchange) same(x Exchange) bool {
	e.Args, x.Args = normalArgs(e.Args), normalArgs(x.Args)
	return reflect.DeepEqual(e, x)
}

func (q Queue) same(x Queue) bool {
	q.Args, x.Args = normalArgs(q.Args), normalArgs(x.Args)
	return reflect.DeepEqual(q, x)
}

func (b Binding) same(x Binding) bool {
	b.Args, x.Args = normalArgs(b.Args), normalArgs(x.Args)
	return reflect.DeepEqual(b, x)
}

// normalArgs makes arguments comparable: nil and empty ones are the same, and so are equal
// integers of different width.
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

// with returns a copy of t with one more entry.
func (t Table) with(key string, value any) Table {
	t = t.Clone()
	t[key] = value
	return t
}

// Clone returns a copy of t that can be written to; its nested values are
// shared with t. A nil t gives an empty table.
func (t Table) Clone() Table {
	if t == nil {
		return Table{}
	}
	return maps.Clone(t)
}
