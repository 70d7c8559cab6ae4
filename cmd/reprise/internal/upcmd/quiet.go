package upcmd

import (
	"context"
	"log/slog"
	"strings"
)

// quietBroker filters the log of a broker that runs in the same process as its workers. It lowers records below level
// warn to level debug. It also lowers warnings about connections within this process, because the workers log the
// events of their own connections in more detail.
type quietBroker struct {
	slog.Handler
	inside bool // the peer is in this process
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

// isInside reports whether an attribute identifies a connection without a socket.
func isInside(a slog.Attr) bool {
	return a.Key == "peer" && strings.HasPrefix(a.Value.String(), "memory:")
}
