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

// empty reports whether t asks for nothing.
func (t Topology) empty() bool { return len(t.Exchanges)+len(t.Queues)+len(t.Bindings) == 0 }

// wayBack returns the key by which the exchange work reaches d.Queue: the
// message's own where that is so. A message that was put into the queue by other
// ways (by name, through the default exchange) has a key that work does not
// know; RabbitMQ would drop it, silently, when it expires. It takes a key that
// leads back.
func (t Topology) wayBack(work string, d Delivery) string {
	if work == "" {
		return d.Queue
	}
	for _, e := range t.Exchanges {
		if e.Name == work && e.Kind != Direct {
			return d.RoutingKey // only a direct exchange compares keys by equality
		}
	}
	first, found := d.RoutingKey, false
	for _, b := range t.Bindings {
		if b.Exchange != work || b.Queue != d.Queue {
			continue
		}
		if b.RoutingKey == d.RoutingKey {
			return d.RoutingKey
		}
		if !found {
			first, found = b.RoutingKey, true
		}
	}
	return first
}
