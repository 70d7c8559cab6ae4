package topology

import (
	"fmt"
	"strings"
)

// Address is where copies are published to. Two words in the Key stand for
// something of each message:
//
//	{queue}   the work queue
//	{key}     the message's own routing key; or, where that does not lead back
//	          from the wait queue to the work queue, one that does
//
// Which keys lead back is seen from the bindings of an Infrastructure: those of
// direct, fanout and topic exchanges, and of exchanges bound to each other or
// named as an alternate-exchange. A topic exchange's pattern stands for itself as
// a key: order.* for a message that was put into its queue by name. Headers
// exchanges, and those of plugins, do not go by the key, or not by it alone: there
// a message keeps its own, and must have come through the exchange to find back.
type Address struct {
	Exchange string // "" is the default exchange: the Key is a queue's name
	Key      string
}

// or returns a, or a queue by its name where a is zero.
func (a Address) or(name string) Address {
	if a == (Address{}) {
		a.Key = name
	}
	return a
}

// key returns the routing key for d, whose {key} is own.
func (a Address) key(d Delivery, own string) string {
	return strings.NewReplacer("{queue}", d.Queue, "{key}", own).Replace(a.Key)
}

// queue returns the name of the queue that is meant for a work queue.
func (a Address) queue(work string) string { return strings.ReplaceAll(a.Key, "{queue}", work) }

// validate reports an address that is not that of a queue for each work queue:
// without an Infrastructure, nothing is known of exchanges and bindings.
func (a Address) validate(field string) error {
	if a.Exchange != "" || !strings.Contains(a.Key, "{queue}") || strings.Contains(a.Key, "{key}") || a.Key == "{queue}" {
		return fmt.Errorf("topology: %s is exchange %q, key %q: name an Infrastructure with that exchange, "+
			"or use no exchange, and as the key a queue's name such as %q", field, a.Exchange, a.Key, "{queue}.wait")
	}
	return nil
}

// hop leads to an address, whose copies come back through the exchange work. If t is empty,
// the queue own is declared instead.
func (t Topology) hop(a Address, d Delivery, work string, own Queue) Hop {
	key := a.key(d, t.wayBack(work, d))
	if t.empty() {
		t = Topology{Queues: []Queue{own}}
	}
	return Hop{Exchange: a.Exchange, RoutingKey: key, Topology: t}
}

// empty reports whether t asks for nothing.
func (t Topology) empty() bool { return len(t.Exchanges)+len(t.Queues)+len(t.Bindings) == 0 }
