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
	"slices"
)

// Kind is an exchange type.
type Kind string

// The exchange types.
const (
	Direct Kind = "direct"
	Fanout Kind = "fanout"
	Topic  Kind = "topic"
)

// Known reports whether there are exchanges of this kind.
func (k Kind) Known() bool { return k == Direct || k == Fanout || k == Topic }

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

	matcher  matcher[Q]
	bindings map[binding[Q]]struct{}
}

// binding is the identity of a binding. Binding twice is the same as once; one unbind undoes it.
type binding[Q comparable] struct {
	destination Destination[Q]
	key         string
	args        string // canonical encoding: bindings that differ in their arguments are two
}

// matcher is the rule of one exchange type. Several bindings may lead from the same key to the same destination (they
// differ in their arguments), so that add and remove count.
type matcher[Q comparable] interface {
	add(key string, d Destination[Q])
	remove(key string, d Destination[Q])
	// match appends the destinations for a routing key to dst, possibly with repetitions.
	match(dst []Destination[Q], key string) []Destination[Q]
}

// Table holds the exchanges of a virtual host by name.
type Table[Q comparable] struct {
	exchanges map[string]*Exchange[Q]
}

// NewTable returns a table without exchanges.
func NewTable[Q comparable]() *Table[Q] {
	return &Table[Q]{exchanges: make(map[string]*Exchange[Q])}
}

// Exchange returns the exchange with that name, or nil.
func (t *Table[Q]) Exchange(name string) *Exchange[Q] { return t.exchanges[name] }

// Exchanges yields all exchanges, in no order.
func (t *Table[Q]) Exchanges() iter.Seq[*Exchange[Q]] {
	return func(yield func(*Exchange[Q]) bool) {
		for _, x := range t.exchanges {
			if !yield(x) {
				return
			}
		}
	}
}

// Add puts in an exchange without bindings, in place of one with the same name. Its kind must be a known one.
func (t *Table[Q]) Add(x Exchange[Q]) *Exchange[Q] {
	added := &x
	added.bindings = make(map[binding[Q]]struct{})
	switch x.Kind {
	case Fanout:
		added.matcher = make(fanout[Q])
	case Topic:
		added.matcher = newTopic[Q]()
	default:
		added.matcher = make(direct[Q])
	}
	t.exchanges[x.Name] = added
	return added
}

// Bind adds a binding; args is a canonical encoding of its arguments. It reports whether the binding is a new one.
func (t *Table[Q]) Bind(x *Exchange[Q], d Destination[Q], key, args string) bool {
	b := binding[Q]{d, key, args}
	if _, exists := x.bindings[b]; exists {
		return false
	}
	x.bindings[b] = struct{}{}
	x.matcher.add(key, d)
	return true
}

// Bound reports whether there is such a binding.
func (t *Table[Q]) Bound(x *Exchange[Q], d Destination[Q], key, args string) bool {
	_, exists := x.bindings[binding[Q]{d, key, args}]
	return exists
}

// Unbind removes a binding if there is one, and with its last binding an auto-delete exchange.
func (t *Table[Q]) Unbind(x *Exchange[Q], d Destination[Q], key, args string) {
	t.unbind(x, binding[Q]{d, key, args})
}

func (t *Table[Q]) unbind(x *Exchange[Q], b binding[Q]) {
	if _, exists := x.bindings[b]; !exists {
		return
	}
	delete(x.bindings, b)
	x.matcher.remove(b.key, b.destination)
	if x.AutoDelete && !x.InUse() {
		t.Delete(x)
	}
}

// InUse reports whether the exchange has bindings that lead from it.
func (x *Exchange[Q]) InUse() bool { return len(x.bindings) > 0 }

// Delete removes an exchange with all bindings from and to it.
func (t *Table[Q]) Delete(x *Exchange[Q]) {
	if t.exchanges[x.Name] != x {
		return
	}
	delete(t.exchanges, x.Name)
	t.forget(Destination[Q]{Exchange: x})
}

// DeleteQueue removes all bindings to a queue.
func (t *Table[Q]) DeleteQueue(q Q) { t.forget(Destination[Q]{Queue: q}) }

// forget walks all bindings: deletions are rare beside messages, and an index by destination would have to be kept at
// each bind. It collects first, since the last binding of an auto-delete exchange takes the exchange with it.
func (t *Table[Q]) forget(d Destination[Q]) {
	for _, x := range t.exchanges {
		var gone []binding[Q]
		for b := range x.bindings {
			if b.destination == d {
				gone = append(gone, b)
			}
		}
		for _, b := range gone {
			t.unbind(x, b)
		}
	}
}

// Route appends the queues that a message published to x under the routing key goes to, each once.
func (t *Table[Q]) Route(dst []Q, x *Exchange[Q], key string) []Q {
	var buffer [8]Destination[Q]
	found := x.matcher.match(buffer[:0], key)
	var seen []*Exchange[Q]
	for i := 0; i < len(found); i++ { // grows while it is walked: exchanges add what they lead to
		switch next := found[i].Exchange; {
		case next == nil:
			if !slices.Contains(dst, found[i].Queue) {
				dst = append(dst, found[i].Queue)
			}
		case next != x && !slices.Contains(seen, next):
			seen = append(seen, next)
			found = next.matcher.match(found, key)
		}
	}
	return dst
}
