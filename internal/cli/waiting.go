package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// waiting tells a person who waits for a command what it is waiting for: a line when
// the broker cannot be reached at first, and another when that has lasted for long.
// What comes of it the command says.
type waiting struct {
	w      io.Writer
	format string        // of the line, with a %s for the reason
	again  time.Duration // how long nothing more is said

	mu   *sync.Mutex
	next *time.Time
}

func newWaiting(w io.Writer, format string, again time.Duration) *slog.Logger {
	return slog.New(waiting{w: w, format: format, again: again, mu: new(sync.Mutex), next: new(time.Time)})
}

// Enabled implements [slog.Handler].
func (p waiting) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (p waiting) Handle(_ context.Context, r slog.Record) error {
	why := map[string]string{"connect failed": "reason", "redrive waits": "error"}[r.Message]
	if why == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Time.Before(*p.next) {
		return nil
	}
	*p.next = r.Time.Add(p.again)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == why {
			fmt.Fprintf(p.w, "reprise: "+p.format+"\n", oneLiner(a.Value.String()))
		}
		return a.Key != why
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (p waiting) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements [slog.Handler].
func (p waiting) WithGroup(string) slog.Handler { return p }
