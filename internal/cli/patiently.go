package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// patiently logs, for a command that takes as long as it takes, what it waits for: a
// line at first, and another when it has waited for long.
type patiently struct {
	w    io.Writer
	mu   *sync.Mutex
	next *time.Time
}

// sayAgain is how long nothing more is said.
const sayAgain = 30 * time.Second

func newPatiently(w io.Writer) *slog.Logger {
	return slog.New(patiently{w: w, mu: new(sync.Mutex), next: new(time.Time)})
}

// Enabled implements [slog.Handler].
func (p patiently) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (p patiently) Handle(_ context.Context, r slog.Record) error {
	why := map[string]string{"connect failed": "reason", "redrive waits": "error"}[r.Message]
	if why == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Time.Before(*p.next) {
		return nil
	}
	*p.next = r.Time.Add(sayAgain)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == why {
			fmt.Fprintf(p.w, "reprise: waiting for the broker: %s\n", oneLiner(a.Value.String()))
		}
		return a.Key != why
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (p patiently) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements [slog.Handler].
func (p patiently) WithGroup(string) slog.Handler { return p }
