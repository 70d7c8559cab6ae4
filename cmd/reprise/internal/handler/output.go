package handler

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
	"github.com/reprisemq/reprise/internal/brief"
)

// maxLine is the maximum number of bytes that lineLogger logs for a line. Lines of structured logs contain stack traces.
const maxLine = 16 << 10

// lineLogger logs its input line by line. It never buffers more than maxLine bytes.
type lineLogger struct {
	log    *slog.Logger
	stream string
	line   []byte
	cut    bool // the line was longer than maxLine
}

// Write never fails, because a logging error must not stop the program.
func (l *lineLogger) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(l.line); len(part) > room {
			part, l.cut = part[:room], true
		}
		l.line = append(l.line, part...)
		if ended {
			l.flush()
		}
		p = rest
	}
	return n, nil
}

// flush logs the current line, even if the line is incomplete. It preserves the indentation, so that tracebacks remain
// readable. A line that is a JSON object keeps its level and its fields.
func (l *lineLogger) flush() {
	text := strings.TrimRightFunc(cause.Plain(l.line), unicode.IsSpace)
	if r, ok := structured(text); ok && !l.cut {
		l.log.Log(context.Background(), r.level, "handler output", "stream", l.stream, "text", r.text, "json", r.line)
	} else if text != "" {
		if l.cut {
			text += " …"
		}
		l.log.Info("handler output", "stream", l.stream, "text", text)
	}
	l.line, l.cut = l.line[:0], false
}

// Sizes of the parts of an output that ends keeps. A stack trace can have thousands of lines below its first.
const (
	keptHead = 4 << 10
	keptTail = 256 << 10
)

// ends keeps the beginning and the end of its input.
type ends struct {
	head, tail []byte
	lost       bool // whether bytes between head and tail are missing
}

func (e *ends) Write(p []byte) (int, error) {
	n := len(p)
	room := min(keptHead-len(e.head), n)
	e.head, p = append(e.head, p[:room]...), p[room:]
	e.tail = append(e.tail, p...)
	if len(e.tail) > 2*keptTail { // moves the bytes rarely
		e.trim()
	}
	return n, nil
}

func (e *ends) trim() {
	if over := len(e.tail) - keptTail; over > 0 {
		e.tail, e.lost = append(e.tail[:0], e.tail[over:]...), true
	}
}

// String returns the text. A line with an ellipsis replaces the missing part.
func (e *ends) String() string {
	e.trim()
	if !e.lost {
		return clean(slices.Concat(e.head, e.tail))
	}
	_, tail, ok := strings.Cut(cause.Plain(e.tail), "\n") // the first line is incomplete
	if !ok {
		tail = cause.Plain(e.tail)
	}
	return clean(e.head) + "\n…\n" + strings.TrimRightFunc(tail, unicode.IsSpace)
}

// errorText returns the text of an error: what has failed, the cause in the same line, and the output below it. Lists and
// error groups use the first line. An output that consists of the cause is not repeated.
func errorText(what, found, output string) string {
	if found == "" {
		return what
	}
	text := what + ": " + found
	if output == found {
		return text
	}
	return text + "\n" + brief.Excerpt(output, maxErrorText-len(text)-1)
}

// both works like io.MultiWriter, for writers that never fail.
type both struct{ a, b io.Writer }

func (w both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p)
	return w.b.Write(p)
}

// lastLines keeps the end of its input.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

// maxLast is the maximum number of bytes that lastLines keeps.
const maxLast = 8 << 10

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p[max(0, len(p)-maxLast):]...)
	if over := len(l.text) - maxLast; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(p), nil
}

// String returns the kept text. It omits the first line if its beginning is missing.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	if _, rest, cut := bytes.Cut(text, []byte("\n")); cut && len(text) == maxLast {
		text = rest
	}
	return clean(text)
}
