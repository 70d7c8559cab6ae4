package topology

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// An expired copy returns to its work queue through the work exchange, with the routing key of the copy. If no binding
// matches that key, the broker silently drops the copy, because it cannot return an expired message to a publisher.

// returnKey returns a routing key with which the work exchange reaches d.Queue. It prefers the key of the message. If
// the message was published through another exchange (for example, directly to the queue through the default exchange),
// the work exchange may not route that key to the queue. returnKey then uses the key of a binding. This is also correct
// for a topic exchange, because a pattern matches itself. In a key, "*" and "#" are ordinary words.
func (t Topology) returnKey(work string, d Delivery) string {
	if work == "" {
		return d.Queue
	}
	keys := []string{d.RoutingKey}
	for _, b := range t.Bindings {
		if b.Queue == d.Queue { // prefer bindings to this queue, because bindings to exchanges can also lead to other queues
			keys = append(keys, b.RoutingKey)
		}
	}
	for _, b := range t.Bindings {
		if b.ToExchange != "" {
			keys = append(keys, b.RoutingKey)
		}
	}
	for _, key := range keys {
		if t.Leads(work, key, d.Queue) {
			return key
		}
	}
	return d.RoutingKey
}

// validateReturnPath reports a queue that the work exchange does not reach with any key. The error contains the name of
// the route.
func (t Topology) validateReturnPath(route, work, queue string) error {
	if work == "" || t.empty() || t.leads(work, queue, nil) {
		return nil
	}
	return fmt.Errorf("topology: %s.Infrastructure must bind exchange %q to work queue %q, or its retries would be lost (add the binding that publishers use)", route, work, queue)
}

// validateWait returns an error if waiting or parked copies would go to the work exchange, because the broker would
// deliver them immediately.
func validateWait(field, wait, work string) error {
	if wait != work {
		return nil
	}
	return fmt.Errorf("topology: %s must not be the work exchange: got %q (use an exchange that leads to another queue)", field, wait)
}

// Leads reports whether an exchange routes messages with a routing key to a queue, according to t. It follows bindings,
// bindings between exchanges and alternate exchanges. It assumes that every binding of an exchange that does not route by
// the key alone matches.
func (t Topology) Leads(exchange, key, queue string) bool {
	return t.leads(exchange, queue, func(kind, bound string) bool { return matches(kind, bound, key) })
}

// leads reports whether an exchange reaches a queue, directly or through other exchanges, by bindings
// that match. A nil match accepts all bindings.
func (t Topology) leads(from, queue string, match func(kind, bound string) bool) bool {
	queues, _ := t.walk(from, func(name string) (Exchange, error) { return t.exchange(name), nil }, match)
	return slices.Contains(queues, queue)
}

// walk returns the queues that an exchange reaches, directly or through other exchanges, by bindings
// that match. A nil match accepts all bindings. An alternate exchange receives messages that match no
// binding (https://www.rabbitmq.com/docs/ae).
func (t Topology) walk(from string, declared func(string) (Exchange, error), match func(kind, bound string) bool) (queues []string, err error) {
	reached := []string{from}
	add := func(to *[]string, name string) {
		if name != "" && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for i := 0; i < len(reached); i++ { // reached grows during the loop
		x, err := declared(reached[i])
		if err != nil {
			return nil, err
		}
		taken := false
		for _, b := range t.Bindings {
			if b.Exchange == x.Name && (match == nil || match(x.Kind, b.RoutingKey)) {
				taken = true
				add(&queues, b.Queue)
				add(&reached, b.ToExchange)
			}
		}
		if alternate, _ := x.Args["alternate-exchange"].(string); !taken || match == nil {
			add(&reached, alternate)
		}
	}
	return queues, nil
}

// exchange returns the declaration of an exchange. If t does not declare the exchange, it has its predeclared kind, or else
// counts as direct, because only an equal key is certain to match.
func (t Topology) exchange(name string) Exchange {
	for _, x := range t.Exchanges {
		if x.Name == name {
			return x
		}
	}
	return Exchange{Name: name, Kind: cmp.Or(predeclaredKinds[name], Direct)}
}

// predeclaredKinds contains the kinds of the amq.* exchanges that every virtual host has.
var predeclaredKinds = map[string]string{
	"amq.direct": Direct, "amq.fanout": Fanout, "amq.topic": Topic, "amq.headers": Headers, "amq.match": Headers,
}

// matches reports whether a binding accepts messages with a key. It returns true for exchanges that do not route by the key
// alone (headers exchanges, exchanges of plugins), because the key cannot rule out a match.
func matches(kind, bound, key string) bool {
	switch kind {
	case Direct:
		return bound == key
	case Topic:
		return amqpvalue.TopicMatches(bound, key)
	}
	return true
}
