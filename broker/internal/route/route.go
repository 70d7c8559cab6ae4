// Package route decides which queues a message goes to: exchanges, bindings and their matching rules.
//
//	message ─► exchange ─┬─ binding ─► queue
//	                     └─ binding ─► exchange ─── binding ─► queue
//
// A [Table] holds the exchanges of one virtual host. It does no locking: whoever owns it does, and routing itself only
// reads. It is generic in the queue handle Q, so that routing hands out queues and not names to be looked up again.
//
// However many bindings lead to a queue, it gets one copy of a message, and exchanges bound in a circle do not send a
// message round for ever (https://www.rabbitmq.com/docs/e2e).
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
	Direct  Kind = "direct"
	Fanout  Kind = "fanout"
	Topic   Kind = "topic"
	Headers Kind = "headers"
)

// Known reports whether there are exchanges of this kind.
func (k Kind) Known() bool { return k == Direct || k == Fanout || k == Topic || k == Headers }

// Arguments are a binding's, or the headers of a message.
type Arguments interface {
	// Get returns the value with that name.
	Get(name string) (any, bool)
	// All yields all names and values.
	All() iter.Seq2[string, any]
}

// Destination is what a binding leads to: a queue, or another exchange.
type Destination[Q comparable] struct {
	Queue    Q
	Exchange *Exchange[Q] // nil when the destination is Queue
}

// Exchange is a named set of bindings and the rule by which they match.
type Exchange[Q comparable] struct {
	Name       string
	Kind       Kind
	Durable    bool
	AutoDelete bool
	Internal   bool
	// Alternate is the exchange that messages go to which this one has no queue for; empty: none.
	Alternate string
	Arguments Arguments // as declared

	matcher  matcher[Q]
	bindings map[binding[Q]]Binding[Q]
}

// binding is the identity of a binding. Binding twice is the same as once; one unbind undoes it.
type binding[Q comparable] struct {
	destination Destination[Q]
	key         string
	args        string // encoded: bindings that differ in their arguments are two
}

// Binding describes a binding from an exchange.
type Binding[Q comparable] struct {
	Destination Destination[Q]
	Key         string
	Arguments   Arguments
	Encoded     string // the arguments as one text, by which bindings differ
}

func (b Binding[Q]) identity() binding[Q] { return binding[Q]{b.Destination, b.Key, b.Encoded} }

// matcher is the rule of one exchange type. Several bindings may lead from the same key to the same destination (they
// differ in their arguments), so that add and remove count.
type matcher[Q comparable] interface {
	add(Binding[Q])
	remove(Binding[Q])
	// match appends the destinations for a message to dst, possibly with repetitions.
	match(dst []Destination[Q], key string, headers Arguments) []Destination[Q]
}

// Table holds the exchanges of a virtual host by name.
type Table[Q comparable] struct {
	// Unbound and Deleted, unless they are nil, are told of each binding and each exchange that is removed, be it only
	// because another one was.
	Unbound func(*Exchange[Q], Binding[Q])
	Deleted func(*Exchange[Q])

	exchanges map[string]*Exchange[Q]
	leading   map[Destination[Q]]map[place[Q]]struct{} // the bindings that lead to a destination
}

// place is where a binding is.
type place[Q comparable] struct {
	exchange *Exchange[Q]
	binding  binding[Q]
}

// NewTable returns a table without exchanges.
func NewTable[Q comparable]() *Table[Q] {
	return &Table[Q]{
		exchanges: make(map[string]*Exchange[Q]),
		leading:   make(map[Destination[Q]]map[place[Q]]struct{}),
	}
}

// Exchange returns the exchange with that name, or nil.
func (t *Table[Q]) Exchange(name string) *Exchange[Q] { return t.exchanges[name] }

// Exchanges yields all exchanges, in no order.
func (t *Table[Q]) Exchanges() iter.Seq[*Exchange[Q]] { return maps.Values(t.exchanges) }

// Len returns the number of exchanges.
func (t *Table[Q]) Len() int { return len(t.exchanges) }

// Add puts in an exchange without bindings, in place of one with the same name. Its kind must be a known one.
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
	default:
		added.matcher = make(direct[Q])
	}
	t.exchanges[x.Name] = added
	return added
}

// Bind adds a binding. It reports whether it is a new one.
func (t *Table[Q]) Bind(x *Exchange[Q], b Binding[Q]) bool {
	if t.Bound(x, b) {
		return false
	}
	x.bindings[b.identity()] = b
	x.matcher.add(b)
	if t.leading[b.Destination] == nil {
		t.leading[b.Destination] = make(map[place[Q]]struct{})
	}
	t.leading[b.Destination][place[Q]{x, b.identity()}] = struct{}{}
	return true
}

// Bound reports whether there is such a binding.
func (t *Table[Q]) Bound(x *Exchange[Q], b Binding[Q]) bool {
	_, exists := x.bindings[b.identity()]
	return exists
}

// Unbind removes a binding if there is one, and with its last binding an auto-delete exchange.
func (t *Table[Q]) Unbind(x *Exchange[Q], b Binding[Q]) {
	if !t.Bound(x, b) {
		return
	}
	delete(x.bindings, b.identity())
	x.matcher.remove(b)
	t.led(x, b)
	if x.AutoDelete && !x.InUse() {
		t.Delete(x)
	}
}

// Bindings yields the bindings that lead from the exchange, in no order.
func (x *Exchange[Q]) Bindings() iter.Seq[Binding[Q]] { return maps.Values(x.bindings) }

// InUse reports whether the exchange has bindings that lead from it.
func (x *Exchange[Q]) InUse() bool { return len(x.bindings) > 0 }

// Delete removes an exchange with all bindings from and to it.
func (t *Table[Q]) Delete(x *Exchange[Q]) {
	if t.exchanges[x.Name] != x {
		return
	}
	delete(t.exchanges, x.Name)
	for _, b := range x.bindings {
		t.led(x, b)
	}
	t.forget(Destination[Q]{Exchange: x})
	if t.Deleted != nil {
		t.Deleted(x)
	}
}

// DeleteQueue removes all bindings to a queue.
func (t *Table[Q]) DeleteQueue(q Q) { t.forget(Destination[Q]{Queue: q}) }

// forget removes all bindings to a destination, and with them the auto-delete exchanges that have no others.
func (t *Table[Q]) forget(d Destination[Q]) {
	for _, at := range slices.Collect(maps.Keys(t.leading[d])) {
		if b, exists := at.exchange.bindings[at.binding]; exists {
			t.Unbind(at.exchange, b)
		}
	}
}

// led takes a binding that was removed out of the index.
func (t *Table[Q]) led(x *Exchange[Q], b Binding[Q]) {
	if t.Unbound != nil {
		t.Unbound(x, b)
	}
	delete(t.leading[b.Destination], place[Q]{x, b.identity()})
	if len(t.leading[b.Destination]) == 0 {
		delete(t.leading, b.Destination)
	}
}

// Route appends the queues that a message published to x goes to, each once. It has one key, and maybe more. Where none of
// them leads anywhere, the alternate exchange is asked.
//
// A message with many keys, or one to many queues, must not take more than its share of time and memory: destinations are
// sets, and an exchange that does not look at keys is asked once.
func (t *Table[Q]) Route(dst []Q, x *Exchange[Q], key string, headers Arguments, more ...string) []Q {
	var buffer [8]Destination[Q]
	matched := buffer[:0]
	queues := set[Q]{list: dst}
	var exchanges set[*Exchange[Q]] // that x leads to; they are asked after it, and may lead to others
	for i, asked := 0, x; ; i++ {
		keys := more
		switch asked.Kind {
		case Headers:
			headers, keys = indexed(headers), nil
		case Fanout:
			keys = nil
		}
		anywhere := false
		for k := range 1 + len(keys) {
			each := key
			if k > 0 {
				each = keys[k-1]
			}
			matched = asked.matcher.match(matched[:0], each, headers)
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
