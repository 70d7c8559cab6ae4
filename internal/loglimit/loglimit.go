// Package loglimit limits log messages about events that can occur at any rate, such as failures that each client can
// cause. It imports the standard library only.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limit permits a number of log messages per minute. The zero value permits one, and a nil Limit permits all. A Limit is
// safe for concurrent use.
type Limit struct {
	Burst int // permitted messages per minute; default: 1

	mu      sync.Mutex
	minute  time.Time // start of the current minute
	logged  int       // number of messages in the current minute
	omitted int
}

// Log counts an event, and logs it with the attribute omitted if it is due.
func (l *Limit) Log(log *slog.Logger, level slog.Level, message string, args ...any) {
	if omitted, due := l.Due(); due {
		log.Log(context.Background(), level, message, append(args, "omitted", omitted)...)
	}
}

// Due counts an event, and reports whether the caller should log it. omitted is the number of events since the last
// logged one for which Due has returned false.
func (l *Limit) Due() (omitted int, due bool) {
	if l == nil {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.minute.IsZero() || now.Sub(l.minute) >= time.Minute {
		l.minute, l.logged = now, 0
	}
	if l.logged >= max(1, l.Burst) {
		l.omitted++
		return 0, false
	}
	l.logged++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}
