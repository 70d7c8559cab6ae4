package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// lineHandler writes a log for people, one event in one line:
//
//	15:04:05.123 INFO  listening  url=amqp://guest:guest@127.0.0.1:5672
//
// The time is the local one, without a date: whoever needs dates collects logs
// by a program, and that reads JSON.
type lineHandler struct {
	w      *lockedWriter
	level  slog.Level
	prefix string // of group names: "a.b."
	attrs  string // those of With, as they are written
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Enabled implements [slog.Handler].
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle implements [slog.Handler].
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if !r.Time.IsZero() {
		b.WriteString(r.Time.Format("15:04:05.000 "))
	}
	fmt.Fprintf(&b, "%-5s %s", r.Level, oneLine(r.Message))
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs += attr(h.prefix, a)
		return true
	})
	if attrs != "" {
		b.WriteString(" " + attrs)
	}
	b.WriteByte('\n')
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	_, err := io.WriteString(h.w.w, b.String())
	return err
}

// WithAttrs implements [slog.Handler].
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += attr(h.prefix, a)
	}
	return &with
}

// WithGroup implements [slog.Handler].
func (h *lineHandler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.prefix += name + "."
	}
	return &with
}

// attr writes " key=value", or nothing.
func attr(prefix string, a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		var b strings.Builder
		for _, x := range v.Group() {
			b.WriteString(attr(prefix, x))
		}
		return b.String()
	}
	if a.Equal(slog.Attr{}) {
		return ""
	}
	text := v.String()
	switch v.Kind() {
	case slog.KindDuration:
		text = v.Duration().Round(time.Microsecond).String()
	case slog.KindTime:
		text = v.Time().Format(time.RFC3339)
	}
	if text == "" || strings.ContainsFunc(text, special) {
		text = strconv.Quote(text)
	}
	return " " + prefix + a.Key + "=" + text
}

// special are the characters a bare value cannot have.
func special(r rune) bool { return r == '"' || unicode.IsSpace(r) || !unicode.IsPrint(r) }

// oneLine keeps what is not ours, such as the output of a program, from
// controlling the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return '\uFFFD'
	}, s)
}
