package handler

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"unicode"
)

// maxLine is the maximum number of bytes that lineLogger logs for a line.
const maxLine = 4 << 10

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
// readable.
func (l *lineLogger) flush() {
	if text := strings.TrimRightFunc(valid(l.line), unicode.IsSpace); text != "" {
		if l.cut {
			text += " …"
		}
		l.log.Info("handler output", "stream", l.stream, "text", text)
	}
	l.line, l.cut = l.line[:0], false
}

// tail keeps the last maxErrorText bytes of its input.
type tail struct {
	last []byte
	lost bool
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > maxErrorText {
		p, t.lost = p[len(p)-maxErrorText:], true
	}
	if over := len(t.last) + len(p) - maxErrorText; over > 0 {
		t.last, t.lost = append(t.last[:0], t.last[over:]...), true
	}
	t.last = append(t.last, p...)
	return n, nil
}

// String returns the text, starting at the first complete character.
func (t *tail) String() string {
	b := t.last
	for i := 0; t.lost && i < 3 && len(b) > 0 && b[0]&0xC0 == 0x80; i++ {
		b = b[1:]
	}
	text := clean(b)
	if t.lost && text != "" {
		return "… " + text
	}
	return text
}

// both works like io.MultiWriter, for writers that never fail.
type both struct{ a, b io.Writer }

func (w both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p)
	return w.b.Write(p)
}
