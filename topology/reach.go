package topology

import (
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/internal/brief"
)

// Reach returns the names of the queues that receive a message with the given exchange and routing
// key, without duplicates. It follows bindings, bindings between exchanges and alternate exchanges.
// The default exchange "" routes to the queue with the name of the key. The result is complete only if
// t has all exchanges and bindings of the virtual host.
//
// Reach returns an error if the routing key and t do not determine the result, because an exchange is unknown or its
// kind is not Direct, Fanout or Topic.
func (t Topology) Reach(exchange, key string) ([]string, error) {
	if exchange == "" {
		return []string{key}, nil
	}
	return t.walk(exchange, t.routesByKey, func(kind, bound string) bool { return matches(kind, bound, key) })
}

// routesByKey returns an exchange, and an error if the exchange is unknown or does not route by the key alone.
func (t Topology) routesByKey(name string) (Exchange, error) {
	x := t.exchange(name)
	_, own := predeclaredKinds[name]
	if !own && !slices.ContainsFunc(t.Exchanges, func(x Exchange) bool { return x.Name == name }) {
		return x, fmt.Errorf("exchange %s not found", brief.Quoted(name))
	}
	switch x.Kind {
	case Direct, Fanout, Topic:
		return x, nil
	}
	return x, fmt.Errorf("exchange %s is of kind %s, which does not route by the key alone", brief.Quoted(name), x.Kind)
}

// Return returns the exchange through which messages return to their work queue after the wait, if the strategy's Route
// sets one. Otherwise it returns false, for example with Buckets, whose copies return directly to the
// work queue.
func (s Strategy) Return() (exchange string, ok bool) {
	switch r := unwrap(s.WithDefaults().Route).(type) {
	case WaitQueue:
		exchange = r.WorkExchange
	case MessageTTL:
		exchange = r.WorkExchange
	case GrowingTTL:
		exchange = r.WorkExchange
	case DeadLettering:
		exchange = r.WorkExchange
	}
	return exchange, exchange != ""
}
