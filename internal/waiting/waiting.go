// Package waiting reports why a program waits for a broker.
package waiting

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Logger returns a logger for a client or a redrive. It calls say with the reason when the broker is unreachable, at first and then
// at most once per interval again. It discards all other logs.
func Logger(again time.Duration, say func(reason string)) *slog.Logger {
	return slog.New(handler{say: say, again: again, mu: new(sync.Mutex), next: new(time.Time)})
}

type handler struct {
	say   func(reason string)
	again time.Duration // how long nothing more is said

	mu   *sync.Mutex
	next *time.Time
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h handler) Handle(_ context.Context, r slog.Record) error {
	why := map[string]string{"connect failed": "reason", "redrive waits": "error"}[r.Message]
	if why == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Time.Before(*h.next) {
		return nil
	}
	*h.next = r.Time.Add(h.again)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == why {
			h.say(strings.TrimPrefix(a.Value.String(), "reprise: "))
		}
		return a.Key != why
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(string) slog.Handler { return h }
