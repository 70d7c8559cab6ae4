package handler

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"unicode"
)

// maxLine is how much of a line of a program's output is logged.
const maxLine = 4 << 10

// lineLogger logs what is written to it, line by line. Memory is bounded by one
// line, whatever a program writes.
type lineLogger struct {
	log    *slog.Logger
	stream string
	line   []byte
	cut    bool // the rest of this line is dropped
}

// Write never fails: a program is not to be stopped by its log.
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

// flush logs a line, also one that has no end, with its indentation: a traceback
// is not to be read without.
func (l *lineLogger) flush() {
	if text := strings.TrimRightFunc(valid(l.line), unicode.IsSpace); text != "" {
		if l.cut {
			text += " …"
		}
		l.log.Info(text, "stream", l.stream)
	}
	l.line, l.cut = l.line[:0], false
}

// tail keeps the last bytes written to it.
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

// String returns the text, beginning with a whole character.
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

// both is io.MultiWriter for writers that never fail.
type both struct{ a, b io.Writer }

func (w both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p)
	return w.b.Write(p)
}
