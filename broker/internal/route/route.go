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
	"iter"
	"maps"
	"slices"
)

// Kind is an exchange type.
type Kind string

// The exchange types.
const (
	Direct      Kind = "direct"
	Fanout      Kind = "fanout"
	Topic       Kind = "topic"
	Headers     Kind = "headers"
	LocalRandom Kind = "x-local-random"
	ModulusHash Kind = "x-modulus-hash"
)

// Known reports whether the exchange type is supported.
func (k Kind) Known() bool {
	return k == Direct || k == Fanout || k == Topic || k == Headers || k == LocalRandom || k == ModulusHash
}

// Arguments contains the arguments of a binding, or the headers of a message.
type Arguments interface {
	// Get returns the value of the first argument or header with the given name.
	Get(name string) (any, bool)
	// All yields all names and values.
	All() iter.Seq2[string, any]
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
	// The argument more contains further routing keys, for a matcher that considers all keys together.
	match(dst []Destination[Q], key string, headers Arguments, more []string) []Destination[Q]
}

// Table contains the exchanges of a virtual host.
type Table[Q comparable] struct {
	// Unbound is called for each removed binding, and Deleted for each deleted exchange, even if one removal is the
	// consequence of another. Both may be nil.
	Unbound func(*Exchange[Q], Binding[Q])
	Deleted func(*Exchange[Q])
	// QueueName returns the name of a queue. It may be nil if there are no exchanges of the type ModulusHash.
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
	switch x.Kind {
	case Fanout:
		added.matcher = make(fanout[Q])
	case Topic:
		added.matcher = newTopic[Q]()
	case Headers:
		added.matcher = make(headers[Q])
	case LocalRandom:
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

// Route appends to dst the destination queues of a message that was published to x, each queue once. The argument key
// is the routing key of the message, and more contains further routing keys, if any. If no routing key matches a
// binding of an exchange, Route uses its alternate exchange.
//
// Time and memory must not grow faster than the number of keys and destination queues. Route therefore collects
// destinations in sets, and evaluates an exchange only once if it does not match each key separately.
func (t *Table[Q]) Route(dst []Q, x *Exchange[Q], key string, headers Arguments, more ...string) []Q {
	var buffer [8]Destination[Q]
	matched := buffer[:0]
	queues := set[Q]{list: dst}
	var exchanges set[*Exchange[Q]] // exchanges reachable from x, evaluated after x
	for i, asked := 0, x; ; i++ {
		keys := more
		switch asked.Kind {
		case Headers:
			headers, keys = indexed(headers), nil
		case Fanout, LocalRandom, ModulusHash:
			keys = nil
		}
		anywhere := false
		for k := range 1 + len(keys) {
			each := key
			if k > 0 {
				each = keys[k-1]
			}
			matched = asked.matcher.match(matched[:0], each, headers, more)
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
