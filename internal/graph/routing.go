package graph

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise/topology"
)

// queuesOf are the nodes of the queues that get what is published to an exchange with
// a key, as far as exchanges go by keys.
func queuesOf(t topology.Topology, exchange, key string) []string {
	if exchange == "" {
		return []string{address("", key)}
	}
	var queues []string
	reached := []string{exchange}
	for i := 0; i < len(reached); i++ { // grows while it is walked
		kind := topology.Direct
		for _, x := range t.Exchanges {
			if x.Name == reached[i] {
				kind = x.Kind
			}
		}
		for _, b := range t.Bindings {
			if b.Exchange != reached[i] || !matches(kind, b.RoutingKey, key) {
				continue
			}
			if b.ToExchange == "" {
				queues = append(queues, address("", b.Queue))
			} else if !slices.Contains(reached, b.ToExchange) {
				reached = append(reached, b.ToExchange)
			}
		}
	}
	return queues
}

// matches reports whether a binding takes messages with a key. What goes by something
// else than keys is not known to.
func matches(kind, bound, key string) bool {
	switch kind {
	case topology.Fanout:
		return true
	case topology.Direct:
		return bound == key
	case topology.Topic:
		return topicMatches(strings.Split(bound, "."), strings.Split(key, "."))
	}
	return false
}

// topicMatches reports whether the words of a pattern match those of a key: "*" is one
// word, "#" any number of them (AMQP 0-9-1, 3.1.3.3).
func topicMatches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return topicMatches(pattern[1:], key) || len(key) > 0 && topicMatches(pattern, key[1:])
	case len(key) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == key[0]) && topicMatches(pattern[1:], key[1:])
}
