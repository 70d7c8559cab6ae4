package topology

import (
	"fmt"
	"slices"
)

// Reach returns the names of the queues that get a message that is published to an exchange
// with a routing key, each once: directly, through exchanges bound to each other, or by an
// alternate-exchange. The default exchange "" routes to the queue named by the key. t must
// have all exchanges and bindings of the virtual host for the answer to be complete.
//
// It returns an error if the key alone does not decide, or if t does not say: the message
// comes by an exchange that t does not have, or whose kind is none of Direct, Fanout and Topic.
func (t Topology) Reach(exchange, key string) ([]string, error) {
	if exchange == "" {
		return []string{key}, nil
	}
	return t.walk(exchange, t.decided, func(kind, bound string) bool { return matches(kind, bound, key) })
}

// decided returns an exchange whose bindings go by the key alone.
func (t Topology) decided(name string) (Exchange, error) {
	x := t.exchange(name)
	_, own := brokerKinds[name]
	if !own && !slices.ContainsFunc(t.Exchanges, func(x Exchange) bool { return x.Name == name }) {
		return x, fmt.Errorf("exchange %q is not known", name)
	}
	switch x.Kind {
	case Direct, Fanout, Topic:
		return x, nil
	}
	return x, fmt.Errorf("exchange %q is of kind %s, which does not route by the key alone", name, x.Kind)
}

// Return returns the exchange through which the copies of a work queue's messages come back
// when they have waited, as far as the strategy's Route names one. It reports false if they
// come back by the name of the queue, as with Buckets and preset.Staking.
func (s Strategy) Return() (exchange string, ok bool) {
	switch r := inside(s.WithDefaults().Route).(type) {
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
