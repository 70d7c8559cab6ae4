package cli

import (
	"context"
	"log/slog"
	"strings"
)

// quietBroker is the log of a broker that runs beside the workers of its own
// process. What it says of their connections the workers say themselves, and
// better; of others, mistakes are news and their coming and going is not. What
// is no news is logged at level debug.
type quietBroker struct {
	slog.Handler
	inside bool // the peer is this process
}

// Enabled implements [slog.Handler].
func (q quietBroker) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.demote(l))
}

func (q quietBroker) demote(l slog.Level) slog.Level {
	if l < slog.LevelWarn || (q.inside && l < slog.LevelError) {
		return min(l, slog.LevelDebug)
	}
	return l
}

// Handle implements [slog.Handler].
func (q quietBroker) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		q.inside = q.inside || isInside(a)
		return !q.inside
	})
	if r.Level = q.demote(r.Level); !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q quietBroker) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		q.inside = q.inside || isInside(a)
	}
	q.Handler = q.Handler.WithAttrs(attrs)
	return q
}

// WithGroup implements [slog.Handler].
func (q quietBroker) WithGroup(name string) slog.Handler {
	q.Handler = q.Handler.WithGroup(name)
	return q
}

// isInside tells the connections that come without a socket.
func isInside(a slog.Attr) bool {
	return a.Key == "peer" && strings.HasPrefix(a.Value.String(), "memory:")
}
