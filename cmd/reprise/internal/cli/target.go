package cli

import (
	"strings"

	"github.com/reprisemq/reprise/failed"
)

// parseTarget reads the value of --to: a queue, or EXCHANGE/KEY. A queue with a
// slash in its name is /QUEUE, that is the key of the default exchange.
func parseTarget(to string) (*failed.Target, error) {
	exchange, key, found := strings.Cut(to, "/")
	switch {
	case to == "":
		return nil, nil
	case to == "/":
		return nil, usagef("--to / names nothing: write a queue, or EXCHANGE/KEY")
	case !found:
		return &failed.Target{RoutingKey: to}, nil
	}
	return &failed.Target{Exchange: exchange, RoutingKey: key}, nil
}

// targetText names a target; none is where each message failed.
func targetText(t *failed.Target) string {
	switch {
	case t == nil:
		return "the queue that each failed in"
	case t.Exchange == "":
		return "the queue " + t.RoutingKey
	}
	return "the exchange " + t.Exchange + " with the key " + t.RoutingKey
}
