package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
)

// routingOf returns the known routes to the queues of workers.
func routingOf(workers []reprise.WorkerConfig, m *console.Management) failed.Routing {
	r := failed.Routing{Workers: workers}
	if m != nil {
		r.Bindings = m.Bindings
	}
	return r
}

// wayText describes a queue, and the route to it unless messages are published directly to it.
func wayText(queue, exchange, key string, keys bool) string {
	switch {
	case exchange == "":
		return terminal.OneLine(key)
	case keys:
		return fmt.Sprintf("%s by exchange %s, each with its own key", terminal.OneLine(queue), terminal.OneLine(exchange))
	}
	return fmt.Sprintf("%s by exchange %s with key %s", terminal.OneLine(queue), terminal.OneLine(exchange), brief.Quoted(key))
}

// warningText formats a warning about the messages of the previous line. If the messages are refused, it adds the flag
// that permits them.
func warningText(warning string, refused bool) string {
	switch {
	case warning == "":
		return ""
	case refused:
		return "\n    not sent, because only the queue name leads there: " + terminal.OneLine(warning) + "\n    (" + otherRoutes + ")"
	}
	return "\n    warning: " + terminal.OneLine(warning)
}

// otherRoutes are the remedies for a message that can return by queue name only.
const otherRoutes = "--management URL or a preset in -c FILE shows the route, --to EXCHANGE/KEY sets it, --by-queue-name permits the queue name"

// warningLogger prints the warnings of a redrive, except about destinations that the user has seen, and passes on all
// other records.
type warningLogger struct {
	slog.Handler
	w     io.Writer
	shown *bool // the user has seen the destinations
}

// Handle implements [slog.Handler].
func (l warningLogger) Handle(ctx context.Context, r slog.Record) error {
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	switch {
	case r.Message == "redrive sends by queue name" && !*l.shown:
		fmt.Fprintf(l.w, "reprise: warning: messages are sent to %s by its name: %s\n", terminal.OneLine(attrs["queue"]), terminal.OneLine(attrs["warning"]))
	case r.Message == "cannot read bindings":
		fmt.Fprintf(l.w, "reprise: warning: cannot read the bindings: %s\n", terminal.OneLine(attrs["error"]))
	case strings.HasPrefix(r.Message, "redrive sends"):
	default:
		return l.Handler.Handle(ctx, r)
	}
	return nil
}
