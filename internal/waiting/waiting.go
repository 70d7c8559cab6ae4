// Package waiting reports why a program waits for a broker.
package waiting

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Logger returns a logger for a client or a redrive. While the broker is unreachable, the logger calls report with the
// reason, at most once per interval. It discards all other logs.
func Logger(interval time.Duration, report func(reason string)) *slog.Logger {
	return slog.New(handler{report: report, interval: interval, mu: new(sync.Mutex), next: new(time.Time)})
}

type handler struct {
	report   func(reason string)
	interval time.Duration // minimum time between two reports

	mu   *sync.Mutex
	next *time.Time
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h handler) Handle(_ context.Context, r slog.Record) error {
	key := map[string]string{"connect failed": "reason", "redrive waits": "error"}[r.Message]
	if key == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Time.Before(*h.next) {
		return nil
	}
	*h.next = r.Time.Add(h.interval)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			h.report(strings.TrimPrefix(a.Value.String(), "reprise: "))
		}
		return a.Key != key
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(string) slog.Handler { return h }
