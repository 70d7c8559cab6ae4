package cli

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/retry"
)

// newWaiting returns a logger that prints why a command waits. The reason replaces %s in format. The argument again
// is the minimum time between two lines.
func newWaiting(w io.Writer, format string, again time.Duration) *slog.Logger {
	return retry.ReasonLogger(again, func(reason string) {
		fmt.Fprintf(w, "reprise: "+format+"\n", terminal.OneLine(reason))
	})
}
