// Package route determines the destination queues of a message. It implements exchanges, bindings and their matching
// rules.
//
//	message ─► exchange ─┬─ binding ─► queue
//	                     └─ binding ─► exchange ─── binding ─► queue
//
// A [Table] contains the exchanges of one virtual host. Methods that do not change the Table, such as Route, may run
// concurrently with each other, but not with methods that change it. The type parameter Q is the type of a queue, so
// that Route returns queues and not names.
//
// A queue gets one copy of a message, regardless of the number of matching bindings. In a cycle of bound exchanges, a
// message passes through each exchange once (https://www.rabbitmq.com/docs/e2e).
package route

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Kind is an exchange type.
type Kind string

// The exchange types.
const (
	Direct         Kind = "direct"
	Fanout         Kind = "fanout"
	Topic          Kind = "topic"
	Headers        Kind = "headers"
	ConsistentHash Kind = "x-consistent-hash"
	Delayed        Kind = "x-delayed-message"
	LocalRandom    Kind = "x-local-random"
	ModulusHash    Kind = "x-modulus-hash"
	Random         Kind = "x-random"
	RecentHistory  Kind = "x-recent-history"
)

// Kinds returns the supported exchange types, sorted by name.
func Kinds() []Kind {
	return []Kind{Direct, Fanout, Headers, Topic, ConsistentHash, Delayed, LocalRandom, ModulusHash, Random, RecentHistory}
}

// Known reports whether the exchange type is supported.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// Varies reports whether equal exchange, routing keys and headers do not imply an equal route.
func (k Kind) Varies() bool {
	return k == LocalRandom || k == Random || k == RecentHistory || k == ConsistentHash
}

// Arguments contains the arguments of a binding, or the headers of a message.
type Arguments interface {
	// Get returns the value of the first argument or header with the given name.
	Get(name string) (any, bool)
	// All yields all names and values.
	All() iter.Seq2[string, any]
}

// Message contains the parts of a message that determine its route.
type Message struct {
	Key     string
	More    []string  // further routing keys
	Headers Arguments // may be nil
	Source  Source    // may be nil, if no exchange hashes a property or has [Exchange.Passed]
}

// Source is the message itself.
type Source interface {
	// Property returns the value of a property by its name in the specification, such as "message-id", or nil.
	Property(name string) any
}

// Destination is the destination of a binding: a queue or another exchange.
type Destination[Q comparable] struct {
	Queue    Q
	Exchange *Exchange[Q] // nil if the destination is Queue
}

// Exchange is an exchange and its bindings.
type Exchange[Q comparable] struct {
	Name       string
	Kind       Kind
	Durable    bool
	AutoDelete bool
	Internal   bool
	// Alternate is the name of the exchange for messages without a matching binding. It may be empty.
	Alternate string
	Arguments Arguments // arguments of the declaration
	// Rule is the exchange type whose rule matches the bindings. Default: Kind.
	Rule Kind
	// Waiting is the queue of an exchange of the type Delayed for the messages whose delay is not over.
	Waiting Q
	// Passed is called for each message that the exchange routes, under the locks of the caller. It may be nil.
	Passed func(Source)

	matcher  matcher[Q]
	bindings map[binding[Q]]Binding[Q]
}

// binding identifies a binding of an exchange. Adding the same binding again has no effect, and one Unbind removes it.
type binding[Q comparable] struct {
	destination Destination[Q]
	key         string
	args        string // encoded arguments; bindings with different arguments are different bindings
}

// Binding is a binding of an exchange.
type Binding[Q comparable] struct {
	Destination Destination[Q]
	Key         string
	Arguments   Arguments
	Encoded     string // encoded arguments, which distinguish bindings
}

func (b Binding[Q]) identity() binding[Q] { return binding[Q]{b.Destination, b.Key, b.Encoded} }

// matcher implements the matching rule of an exchange type. Several bindings may have the same key and destination and
// differ only in their arguments, so add and remove must count them.
type matcher[Q comparable] interface {
	add(Binding[Q])
	remove(Binding[Q])
	// match appends to dst the destinations of the bindings that match a message. A destination may occur several times.
	// The key is one of the keys of the message. A matcher that considers all keys together uses Message.Key and More.
	match(dst []Destination[Q], key string, m Message) []Destination[Q]
}

// Table contains the exchanges of a virtual host.
type Table[Q comparable] struct {
	// Unbound is called for each removed binding, and Deleted for each deleted exchange, even if one removal is the
	// consequence of another. Both may be nil.
	Unbound func(*Exchange[Q], Binding[Q])
	Deleted func(*Exchange[Q])
	// QueueName returns the name of a queue. It may be nil if there are no exchanges of the types ModulusHash and
	// ConsistentHash.
	QueueName func(Q) string

	exchanges     map[string]*Exchange[Q]
	byDestination map[Destination[Q]]map[bindingRef[Q]]struct{} // the bindings to each destination
}

// bindingRef refers to a binding of an exchange.
type bindingRef[Q comparable] struct {
	exchange *Exchange[Q]
	binding  binding[Q]
}

// NewTable returns a table without exchanges.
func NewTable[Q comparable]() *Table[Q] {
	return &Table[Q]{
		exchanges:     make(map[string]*Exchange[Q]),
		byDestination: make(map[Destination[Q]]map[bindingRef[Q]]struct{}),
	}
}

// Exchange returns the exchange with the given name, or nil.
func (t *Table[Q]) Exchange(name string) *Exchange[Q] { return t.exchanges[name] }

// Exchanges yields all exchanges in unspecified order.
func (t *Table[Q]) Exchanges() iter.Seq[*Exchange[Q]] { return maps.Values(t.exchanges) }

// Len returns the number of exchanges.
func (t *Table[Q]) Len() int { return len(t.exchanges) }

// Add adds an exchange without bindings, and returns it. The type of the exchange must be supported. Add replaces an
// exchange with the same name.
func (t *Table[Q]) Add(x Exchange[Q]) *Exchange[Q] {
	added := &x
	added.bindings = make(map[binding[Q]]Binding[Q])
	added.Rule = cmp.Or(x.Rule, x.Kind)
	switch added.Rule {
	case Fanout, RecentHistory:
		added.matcher = make(fanout[Q])
	case Topic:
		added.matcher = newTopic[Q]()
	case Headers:
		added.matcher = make(headers[Q])
	case ConsistentHash:
		added.matcher = &rendezvous[Q]{queueName: t.QueueName, hashed: hashedBy(x.Arguments)}
	case LocalRandom, Random:
		added.matcher = &single[Q]{bound: make(refs[Q]), queueName: t.QueueName, choose: randomly}
	case ModulusHash:
		added.matcher = &single[Q]{bound: make(refs[Q]), queueName: t.QueueName, choose: byHash}
	default:
		added.matcher = make(direct[Q])
	}
	t.exchanges[x.Name] = added
	return added
}

// Bind adds a binding. It reports whether the binding is new.
func (t *Table[Q]) Bind(x *Exchange[Q], b Binding[Q]) bool {
	if t.Bound(x, b) {
		return false
	}
	x.bindings[b.identity()] = b
	x.matcher.add(b)
	if t.byDestination[b.Destination] == nil {
		t.byDestination[b.Destination] = make(map[bindingRef[Q]]struct{})
	}
	t.byDestination[b.Destination][bindingRef[Q]{x, b.identity()}] = struct{}{}
	return true
}

// Bound reports whether the exchange has the binding.
func (t *Table[Q]) Bound(x *Exchange[Q], b Binding[Q]) bool {
	_, exists := x.bindings[b.identity()]
	return exists
}

// Unbind removes a binding, if it exists. If it was the last binding of an auto-delete exchange, Unbind also deletes
// the exchange.
func (t *Table[Q]) Unbind(x *Exchange[Q], b Binding[Q]) {
	if !t.Bound(x, b) {
		return
	}
	delete(x.bindings, b.identity())
	x.matcher.remove(b)
	t.unindex(x, b)
	if x.AutoDelete && !x.InUse() {
		t.Delete(x)
	}
}

// Bindings yields the bindings from the exchange to its destinations, in unspecified order.
func (x *Exchange[Q]) Bindings() iter.Seq[Binding[Q]] { return maps.Values(x.bindings) }

// InUse reports whether the exchange has any bindings to destinations.
func (x *Exchange[Q]) InUse() bool { return len(x.bindings) > 0 }

// Delete removes an exchange, and all bindings from it and to it.
func (t *Table[Q]) Delete(x *Exchange[Q]) {
	if t.exchanges[x.Name] != x {
		return
	}
	delete(t.exchanges, x.Name)
	for _, b := range x.bindings {
		t.unindex(x, b)
	}
	t.removeBindings(Destination[Q]{Exchange: x})
	if t.Deleted != nil {
		t.Deleted(x)
	}
}

// DeleteQueue removes all bindings to a queue.
func (t *Table[Q]) DeleteQueue(q Q) { t.removeBindings(Destination[Q]{Queue: q}) }

// removeBindings removes all bindings to a destination, and the auto-delete exchanges that do not have other bindings.
func (t *Table[Q]) removeBindings(d Destination[Q]) {
	for _, at := range slices.Collect(maps.Keys(t.byDestination[d])) {
		if b, exists := at.exchange.bindings[at.binding]; exists {
			t.Unbind(at.exchange, b)
		}
	}
}

// unindex removes a binding from byDestination, and calls Unbound.
func (t *Table[Q]) unindex(x *Exchange[Q], b Binding[Q]) {
	if t.Unbound != nil {
		t.Unbound(x, b)
	}
	delete(t.byDestination[b.Destination], bindingRef[Q]{x, b.identity()})
	if len(t.byDestination[b.Destination]) == 0 {
		delete(t.byDestination, b.Destination)
	}
}

// Route appends to dst the destination queues of a message that was published to x, each queue once. If no routing key
// matches a binding of an exchange, Route uses its alternate exchange. An exchange of the type Delayed routes a message
// with a [Delay] to its Waiting queue.
//
// Time and memory must not grow faster than the number of keys and destination queues. Route therefore collects
// destinations in sets, and evaluates an exchange only once if it does not match each key separately.
func (t *Table[Q]) Route(dst []Q, x *Exchange[Q], m Message) []Q {
	var buffer [8]Destination[Q]
	matched := buffer[:0]
	queues := set[Q]{list: dst}
	var exchanges set[*Exchange[Q]] // exchanges reachable from x, evaluated after x
	for i, asked := 0, x; ; i++ {
		keys := m.More
		switch asked.Rule {
		case Headers:
			m.Headers, keys = indexed(m.Headers), nil
		case Fanout, RecentHistory, LocalRandom, Random, ModulusHash, ConsistentHash:
			keys = nil
		}
		rounds := 1 + len(keys)
		anywhere := asked.Kind == Delayed && Delay(m.Headers) > 0
		switch {
		case anywhere:
			queues.add(asked.Waiting)
			rounds = 0
		case asked.Passed != nil:
			asked.Passed(m.Source)
		}
		for k := range rounds {
			each := m.Key
			if k > 0 {
				each = keys[k-1]
			}
			matched = asked.matcher.match(matched[:0], each, m)
			for _, d := range matched {
				switch anywhere = true; {
				case d.Exchange == nil:
					queues.add(d.Queue)
				case d.Exchange != x:
					exchanges.add(d.Exchange)
				}
			}
		}
		if !anywhere && asked.Alternate != "" {
			// https://www.rabbitmq.com/docs/ae
			if alternate := t.exchanges[asked.Alternate]; alternate != nil && alternate != x {
				exchanges.add(alternate)
			}
		}
		if i == len(exchanges.list) {
			return queues.list
		}
		asked = exchanges.list[i]
	}
}
