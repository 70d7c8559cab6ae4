package broker

import (
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/broker/internal/management"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// acceptPause is the time for which Serve waits before it accepts again, so that other connections can close.
const acceptPause = 50 * time.Millisecond

// outOfFiles reports whether err is temporary: the machine is out of file descriptors or memory until other connections
// close, or a client has aborted its connection.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// acceptLog logs the failures of a listener at most once per minute, because they repeat while clients wait. It also logs
// the end of failures that it has logged.
type acceptLog struct {
	log   *slog.Logger
	limit loglimit.Limit
	since time.Time // time of the first logged failure since the last accepted connection, or zero
}

func (a *acceptLog) failed(err error) {
	omitted, due := a.limit.Due()
	if !due {
		return
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	text := "cannot accept connections"
	if errors.Is(err, syscall.EMFILE) {
		text += " (raise the limit of open files)"
	}
	a.log.Error(text, "error", err, "file_limit", management.MaxFiles(), "since", a.since, "omitted", omitted)
}

func (a *acceptLog) accepted() {
	if !a.since.IsZero() {
		a.log.Info("connections are accepted again", "after", time.Since(a.since).Round(time.Millisecond))
		a.since = time.Time{}
	}
}
