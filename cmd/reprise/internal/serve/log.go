package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// LogFlags are the flags of commands that log.
type LogFlags struct {
	Log      string     `enum:"text,json,journal" default:"text" help:"Log format: text, json, or journal for systemd. Default ${default}." placeholder:"FORM"`
	LogLevel slog.Level `name:"log-level" default:"info" help:"Minimum log level: debug, info, warn or error. Default ${default}." placeholder:"LEVEL"`
}

// jsonAttr gives durations a unit. By default, they are numbers of nanoseconds.
func jsonAttr(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = shortDuration(a.Value.Duration())
	}
	return a
}

// shortDuration returns a duration with a unit, without meaningless digits.
func shortDuration(d time.Duration) slog.Value {
	return slog.StringValue(d.Round(time.Microsecond).String())
}

// Logger returns a logger that writes to w.
func (f LogFlags) Logger(w io.Writer) *slog.Logger {
	if f.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: f.LogLevel, ReplaceAttr: jsonAttr}))
	}
	return slog.New(newLineHandler(w, f.LogLevel, f.Log == "journal"))
}

// lineHandler writes a log for terminals, one event per line:
//
//	15:04:05.123 INFO  listening  url=amqp://guest:guest@127.0.0.1:5600
//
// The time is local and has no date. Programs that collect logs should use the JSON format. In the systemd journal,
// which adds the time itself, the line begins with the priority instead, as sd-daemon(3) describes:
//
//	<6>INFO  listening  url=amqp://guest:guest@127.0.0.1:5600
type lineHandler struct {
	slog.Handler // writes the attributes to out.attrs
	out          *lineWriter
	journal      bool
}

type lineWriter struct {
	mu    sync.Mutex
	w     io.Writer
	attrs bytes.Buffer
}

func newLineHandler(w io.Writer, level slog.Leveler, journal bool) slog.Handler {
	out := &lineWriter{w: w}
	return lineHandler{slog.NewTextHandler(&out.attrs, &slog.HandlerOptions{Level: level, ReplaceAttr: lineAttr}), out, journal}
}

// lineAttr removes empty strings and the attributes that Handle writes itself, and shortens times and durations.
func lineAttr(groups []string, a slog.Attr) slog.Attr {
	switch v := a.Value; {
	case len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey):
		return slog.Attr{}
	case v.Kind() == slog.KindString && v.String() == "":
		return slog.Attr{}
	case v.Kind() == slog.KindDuration:
		a.Value = shortDuration(v.Duration())
	case v.Kind() == slog.KindTime:
		a.Value = slog.StringValue(v.Time().Format(time.RFC3339))
	}
	return a
}

// Handle implements [slog.Handler].
func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	line := fmt.Sprintf("%-5s %s", r.Level, terminal.OneLine(r.Message))
	switch {
	case h.journal:
		line = fmt.Sprintf("<%d>%s", priority(r.Level), line)
	case !r.Time.IsZero():
		line = r.Time.Format("15:04:05.000 ") + line
	}
	r.Time = time.Time{}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.attrs.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	if attrs := strings.TrimSuffix(h.out.attrs.String(), "\n"); attrs != "" {
		line += "  " + attrs
	}
	_, err := io.WriteString(h.out.w, line+"\n")
	return err
}

// WithAttrs implements [slog.Handler].
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineHandler{h.Handler.WithAttrs(attrs), h.out, h.journal}
}

// WithGroup implements [slog.Handler].
func (h lineHandler) WithGroup(name string) slog.Handler {
	return lineHandler{h.Handler.WithGroup(name), h.out, h.journal}
}

// priority returns the syslog priority of a level.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}
