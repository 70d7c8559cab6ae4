package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// waiting tells a person who waits for a command what it is waiting for: once,
// when the broker cannot be reached at first. What comes of it the command says.
type waiting struct {
	w    io.Writer
	time time.Duration
	once *sync.Once
}

func newWaiting(w io.Writer, d time.Duration) *slog.Logger {
	return slog.New(waiting{w: w, time: d, once: new(sync.Once)})
}

// Enabled implements [slog.Handler].
func (p waiting) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (p waiting) Handle(_ context.Context, r slog.Record) error {
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		said[a.Key] = a.Value.String()
		return true
	})
	if r.Message != "connect failed" {
		return nil
	}
	p.once.Do(func() {
		fmt.Fprintf(p.w, "reprise: not connected yet (%s), trying for %s\n", said["reason"], p.time)
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (p waiting) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements [slog.Handler].
func (p waiting) WithGroup(string) slog.Handler { return p }
