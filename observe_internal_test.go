package reprise

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// An Observer that panics for each event does not fill the log.
func TestFailuresOfObserverDoNotFloodLog(t *testing.T) {
	var log bytes.Buffer
	c := (&Config{
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		Observer: ObserverFunc(func(Event) { panic("no metrics") }),
	}).withDefaults()
	for range 1000 {
		c.Observer.Observe(Event{Kind: EventDone})
	}
	if n := strings.Count(log.String(), "observer failed"); n != 10 {
		t.Errorf("got %d log messages about 1000 failures, want 10", n)
	}
}
