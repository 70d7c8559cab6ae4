package cli

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/waiting"
)

// newWaiting returns a logger that prints why a command waits, as one line in which the reason replaces %s of format.
// After a line, it prints no further line until the duration again has passed.
func newWaiting(w io.Writer, format string, again time.Duration) *slog.Logger {
	return waiting.Logger(again, func(reason string) {
		fmt.Fprintf(w, "reprise: "+format+"\n", terminal.OneLine(reason))
	})
}
