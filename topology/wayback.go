package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A copy that expires goes back to its work queue through the exchange that work
// is published to, under the key that the copy was given. Where that key leads
// nowhere, the broker drops the copy, and nobody hears of it: an expired message
// has no publisher to be returned to.

// wayBack returns the key by which the exchange work reaches d.Queue: the
// message's own where that is so. A message that was put into the queue by other
// ways (by name, through the default exchange) has a key that work does not
// know: it takes that of a binding. For a direct exchange such a key is right as
// it is, for a topic exchange too: a pattern matches itself, its "*" and "#"
// being words like any other.
func (t Topology) wayBack(work string, d Delivery) string {
	if work == "" {
		return d.Queue
	}
	keys := []string{d.RoutingKey}
	for _, b := range t.Bindings {
		if b.Queue == d.Queue { // what is meant for this queue alone, before what may lead to others as well
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

// validateWayBack reports that no binding leads from the exchange work to the
// queue, whatever the key. The route is named for the error.
func (t Topology) validateWayBack(route, work, queue string) error {
	if work == "" || t.empty() || t.leads(work, queue, nil) {
		return nil
	}
	return fmt.Errorf("topology: nothing leads from the exchange %q to the work queue %q, so that its retries would be lost: "+
		"add the binding by which it gets its messages to %s.Infrastructure", work, queue, route)
}

// validateWait reports that copies, to wait or to be parked, are published where work
// is, under a key of work: they would be delivered at once.
func validateWait(field, wait, work string) error {
	if wait != work {
		return nil
	}
	return fmt.Errorf("topology: %s is %q, which leads to the work queue at once: name an exchange in front of another queue", field, wait)
}

// Leads reports whether an exchange leads to a queue for messages with that routing key,
// as far as t says: directly, through exchanges bound to each other, or by an
// alternate-exchange. Of exchanges that do not go by the key, or not by it alone, it is
// assumed.
func (t Topology) Leads(exchange, key, queue string) bool {
	return t.leads(exchange, queue, func(kind, bound string) bool { return matches(kind, bound, key) })
}

// leads reports whether an exchange leads to a queue, directly or through others,
// by bindings that match; nil is all of them.
func (t Topology) leads(from, queue string, match func(kind, bound string) bool) bool {
	queues, _ := t.walk(from, func(name string) (Exchange, error) { return t.exchange(name), nil }, match)
	return slices.Contains(queues, queue)
}

// walk returns the queues to which an exchange leads, directly or through others, by bindings
// that match; nil is all of them. An alternate exchange gets what an exchange has no binding
// for (https://www.rabbitmq.com/docs/ae).
func (t Topology) walk(from string, declared func(string) (Exchange, error), match func(kind, bound string) bool) (queues []string, err error) {
	reached := []string{from}
	add := func(to *[]string, name string) {
		if name != "" && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for i := 0; i < len(reached); i++ { // grows while it is walked
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

// exchange returns the declaration of an exchange. The broker's own are there
// without one; of others it is only known that a key bound literally is right.
func (t Topology) exchange(name string) Exchange {
	for _, x := range t.Exchanges {
		if x.Name == name {
			return x
		}
	}
	return Exchange{Name: name, Kind: cmp.Or(brokerKinds[name], Direct)}
}

// brokerKinds are the kinds of the exchanges that every virtual host has.
var brokerKinds = map[string]string{
	"amq.direct": Direct, "amq.fanout": Fanout, "amq.topic": Topic, "amq.headers": Headers, "amq.match": Headers,
}

// matches reports whether a binding takes messages with that key. Where that is
// not for the key to say (headers exchanges, those of plugins), it does: no other
// key would be better.
func matches(kind, bound, key string) bool {
	switch kind {
	case Direct:
		return bound == key
	case Topic:
		return topicMatches(bound, key)
	}
	return true
}

// topicMatches reports whether a pattern matches a key: "*" stands for one word,
// "#" for any number of them (AMQP 0-9-1, §3.1.3.3). What the last "#" takes
// grows until the rest fits, which is enough: an earlier one need take no more.
func topicMatches(pattern, key string) bool {
	p, k := words(pattern), words(key)
	hash, taken := -1, 0 // the last "#", and the end of the words that it takes
	i, j := 0, 0
	for j < len(k) {
		switch {
		case i < len(p) && p[i] == "#":
			hash, taken = i, j
			i++
		case i < len(p) && (p[i] == "*" || p[i] == k[j]):
			i++
			j++
		case hash >= 0:
			taken++
			i, j = hash+1, taken
		default:
			return false
		}
	}
	for i < len(p) && p[i] == "#" {
		i++
	}
	return i == len(p)
}

// words splits a key as RabbitMQ does: the empty key has no words, "." has two
// empty ones.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}
