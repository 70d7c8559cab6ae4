package topology

import (
	"fmt"
	"strings"
)

// Address is the destination to which a Route publishes copies. The Key may contain two placeholders:
//
//	{queue}   the work queue
//	{key}     the routing key of the message, or another key that leads from the
//	          wait queue to the work queue, if the key of the message does not
//
// To find this key, the package follows the Infrastructure: bindings of direct, fanout and topic exchanges, bindings between
// exchanges, and alternate exchanges. For a topic exchange, the pattern of a binding is also a valid key. For example, if
// the queue is bound with order.*, the copy of a message that was published directly to the queue (through the default
// exchange) gets the key order.*.
//
// Headers exchanges and the exchanges of plugins do not route by the key alone. A copy that returns through such an
// exchange keeps the key of the message, and is certain to return only if the message was first published through the same
// exchange.
type Address struct {
	Exchange string // "" is the default exchange; Key is then the name of a queue
	Key      string
}

// orQueue returns a, or the address of the named queue if a is zero.
func (a Address) orQueue(name string) Address {
	if a == (Address{}) {
		a.Key = name
	}
	return a
}

// key returns the routing key for d, with {key} replaced by own.
func (a Address) key(d Delivery, own string) string {
	return strings.NewReplacer("{queue}", d.Queue, "{key}", own).Replace(a.Key)
}

// queue returns the Key with {queue} replaced by the name of the work queue. The result is the name of a queue.
func (a Address) queue(work string) string { return strings.ReplaceAll(a.Key, "{queue}", work) }

// validate reports an address that does not name a separate queue for each work queue. Routes call it if the
// Infrastructure is empty, because exchanges and bindings are then unknown.
func (a Address) validate(field string) error {
	if a.Exchange != "" || !strings.Contains(a.Key, "{queue}") || strings.Contains(a.Key, "{key}") || a.Key == "{queue}" {
		return fmt.Errorf("topology: %s must have no exchange and the key of another queue, such as %q: got exchange %q, key %q (or declare the exchange in Infrastructure)", field, "{queue}.wait", a.Exchange, a.Key)
	}
	return nil
}

// hop returns the hop to the address a. The copy returns to the work queue through the exchange work. If t is empty, the
// hop declares only the queue own.
func (t Topology) hop(a Address, d Delivery, work string, own Queue) Hop {
	key := a.key(d, t.returnKey(work, d))
	if t.empty() {
		t = Topology{Queues: []Queue{own}}
	}
	return Hop{Exchange: a.Exchange, RoutingKey: key, Topology: t}
}

// empty reports whether t has no declarations.
func (t Topology) empty() bool { return len(t.Exchanges)+len(t.Queues)+len(t.Bindings) == 0 }
