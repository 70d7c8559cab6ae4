package pages

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// The last step of a message whose replay was unsuccessful links to the message that results from it.
func TestJourneyLinksLaterFailure(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := &failed.Message{ID: 21, State: failed.Replayed, Outcome: failed.OutcomeFailedAgain, ReplayedBy: 2}
	replay := &failed.Replay{ID: 2}
	for want, again := range map[string]*failed.Summary{"/messages/22": {ID: 22, LastFailed: at}, "/messages?replay=2&state=all": nil} {
		steps := journey(m, nil, replay, again, nil)
		last := steps[len(steps)-1]
		if last.What != "Failed again" || last.Href != want || last.Time.IsZero() != (again == nil) {
			t.Errorf("last step with the later failure %v: got %+v, want a link to %s", again, last, want)
		}
	}
	if got := shownState(m.State, m.Outcome); got != "failed again" {
		t.Errorf("shown state of a replayed message that failed again: got %q, want %q", got, "failed again")
	}
}
