package failedcmd

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
)

// The list shows the cause of a failure, and not the output of the handler below it.
func TestFailedLsShowsCauseOnly(t *testing.T) {
	for text, want := range map[string]string{
		"node: exit status 1: Error: card declined\n/app/charge.js:2\n    at f (/app/charge.js:2:9)": "node: exit status 1: Error: card declined",
		"\ncard declined": "card declined",
		"":                "",
	} {
		cells := (&lsCmd{}).line(api.Summary{Error: text}, time.Now())
		if got := cells[len(cells)-1]; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
