// Package destination parses and describes the queues and exchanges to which failed messages return.
package destination

import (
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
)

// Parse parses the value of --to: a queue, or EXCHANGE/KEY. The form /QUEUE, with the default exchange, permits a
// queue name with a slash.
func Parse(to string) (*failed.Target, error) {
	exchange, key, found := strings.Cut(to, "/")
	switch {
	case to == "":
		return nil, nil
	case to == "/":
		return nil, exit.Usagef("--to must be a queue, or EXCHANGE/KEY: got /")
	case !found:
		return &failed.Target{RoutingKey: to}, nil
	}
	return &failed.Target{Exchange: exchange, RoutingKey: key}, nil
}

// Text describes a target. nil means the work queue of each message.
func Text(t *failed.Target) string {
	switch {
	case t == nil:
		return "the original queues"
	case t.Exchange == "":
		return "the queue " + t.RoutingKey
	}
	return "the exchange " + t.Exchange + " with the key " + t.RoutingKey
}

// Way describes a queue, and the route to it unless messages are published directly to it.
func Way(queue, exchange, key string, keys bool) string {
	switch {
	case exchange == "":
		return terminal.OneLine(key)
	case keys:
		return fmt.Sprintf("%s by exchange %s, each with its own key", terminal.OneLine(queue), terminal.OneLine(exchange))
	}
	return fmt.Sprintf("%s by exchange %s with key %s", terminal.OneLine(queue), terminal.OneLine(exchange), brief.Quoted(key))
}

// Warning formats a warning about the messages of the previous line. If the messages are refused, it adds the flag
// that permits them.
func Warning(warning string, refused bool) string {
	switch {
	case warning == "":
		return ""
	case refused:
		return "\n    not sent, because only the queue name leads there: " + terminal.OneLine(warning) + "\n    (" + OtherRoutes + ")"
	}
	return "\n    warning: " + terminal.OneLine(warning)
}

// OtherRoutes are the remedies for a message that can return by queue name only.
const OtherRoutes = "--management URL or a preset in -c FILE shows the route, --to EXCHANGE/KEY sets it, --by-queue-name permits the queue name"
