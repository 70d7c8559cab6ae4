package cli

import (
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// parseTarget parses the value of --to: a queue, or EXCHANGE/KEY. The form /QUEUE, with the default exchange, permits a
// queue name with a slash.
func parseTarget(to string) (*failed.Target, error) {
	exchange, key, found := strings.Cut(to, "/")
	switch {
	case to == "":
		return nil, nil
	case to == "/":
		return nil, usagef("--to must be a queue, or EXCHANGE/KEY: got /")
	case !found:
		return &failed.Target{RoutingKey: to}, nil
	}
	return &failed.Target{Exchange: exchange, RoutingKey: key}, nil
}

// targetText describes a target. nil means the work queue of each message.
func targetText(t *failed.Target) string {
	switch {
	case t == nil:
		return "the original queues"
	case t.Exchange == "":
		return "the queue " + t.RoutingKey
	}
	return "the exchange " + t.Exchange + " with the key " + t.RoutingKey
}
