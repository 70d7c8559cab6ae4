package archive

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// An act must change the messages on its confirmation page, and no message that arrived later.
func TestActIsLimitedToConfirmationPage(t *testing.T) {
	row := func(id failed.ID, state failed.State) Row {
		r := Row{Message: failed.Message{ID: id, State: state}}
		if state == failed.Discarded {
			r.Discarded = "obsolete"
		}
		return r
	}
	rows := func(first, second failed.State) map[failed.ID]Row {
		return map[failed.ID]Row{1: row(1, first), 2: row(2, second)}
	}
	for _, test := range []struct {
		name          string
		first, second failed.State // after the discard; the page showed the first message
		want          string
	}{
		{"first message", failed.Discarded, failed.Failed, ""},
		{"later message", failed.Failed, failed.Discarded, "was changed but not selected"},
		{"no message", failed.Failed, failed.Failed, "was selected but not changed"},
	} {
		var broken []string
		s := NewSystem(Environment{Broken: func(_, detail string) { broken = append(broken, detail) }}, Options{}, t.TempDir())
		i := intent{verb: "discard", from: failed.Failed, reason: "obsolete", selects: func(Row) bool { return true }}
		e := actOutcome{before: rows(failed.Failed, failed.Failed), through: 1, status: 200, n: -1}
		s.checkOutcome(i, 1, e, rows(test.first, test.second), 0)
		if got := strings.Join(broken, "; "); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
