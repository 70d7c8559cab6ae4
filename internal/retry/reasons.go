package retry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// ReasonLogger returns a logger for a client or a redrive. While the broker is unreachable, the logger calls report with the
// reason, at most once per interval. It discards all other logs.
func ReasonLogger(interval time.Duration, report func(reason string)) *slog.Logger {
	return slog.New(reasons{report: report, interval: interval, mu: new(sync.Mutex), next: new(time.Time)})
}

type reasons struct {
	report   func(reason string)
	interval time.Duration // minimum time between two reports

	mu   *sync.Mutex
	next *time.Time
}

// Enabled implements [slog.Handler].
func (h reasons) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h reasons) Handle(_ context.Context, r slog.Record) error {
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
func (h reasons) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h reasons) WithGroup(string) slog.Handler { return h }
