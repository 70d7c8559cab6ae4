package cli

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/waiting"
)

// newWaiting writes what a command waits for, a line with the reason for the %s of
// format, and nothing more for a while.
func newWaiting(w io.Writer, format string, again time.Duration) *slog.Logger {
	return waiting.Logger(again, func(reason string) {
		fmt.Fprintf(w, "reprise: "+format+"\n", terminal.OneLine(reason))
	})
}
