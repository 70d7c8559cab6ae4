package reprisetest

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxEvents is the number of events that the log keeps from its start. From its end, it keeps at least as many.
const maxEvents = 100

// events is the log of the broker, the clients and the workers, for a failed test.
type events struct {
	began time.Time

	mu      sync.Mutex
	first   []string
	last    []string
	dropped bool
}

// logger returns a logger that writes to e.
func (e *events) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(e, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.String("at", a.Value.Time().Sub(e.began).String())
			}
			return a
		},
	}))
}

// Write implements io.Writer for the log handler, which calls it once per line.
func (e *events) Write(line []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.first) < maxEvents:
		e.first = append(e.first, string(line))
		return len(line), nil
	case len(e.last) == 2*maxEvents:
		e.last = slices.Delete(e.last, 0, maxEvents)
		e.dropped = true
	}
	e.last = append(e.last, string(line))
	return len(line), nil
}

// String returns the lines, indented.
func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := slices.Clone(e.first)
	if e.dropped {
		lines = append(lines, "…\n")
	}
	lines = append(lines, e.last...)
	return "\t" + strings.TrimSuffix(strings.Join(lines, "\t"), "\n")
}
