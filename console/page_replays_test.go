package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/failed"
)

// Before a replay begins, its page says what would go where, and what nobody knows the place
// of.
func TestTheReplayFormSaysWhatGoesWhere(t *testing.T) {
	c := newConsole(t, Config{Replayer: &waker{}})
	for _, queue := range []string{"refunds", "refunds", "orders"} {
		add(t, c.cfg.Archive, func(m *failed.Message) { m.Queue, m.FailedQueue = queue, "orders.failed" })
	}
	add(t, c.cfg.Archive, func(m *failed.Message) { m.Queue, m.FailedQueue = "", "dead-letters" })
	w := ask(t, c, "GET", "/replays/new?state=failed", nil)
	text := strings.Join(strings.Fields(tags.ReplaceAllString(w.Body.String(), " ")), " ")
	for _, want := range []string{"refunds orders.failed 2", "orders orders.failed 1", "nowhere dead-letters 1", "1 cannot be sent back"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
}

// What a replay could not send is told, with the reason, on the message's page and on the
// replay's.
func TestPagesTellWhatCouldNotBeSent(t *testing.T) {
	c := newConsole(t, Config{Replayer: &waker{}})
	id := add(t, c.cfg.Archive, nil)
	r, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cfg.Archive.Refuse(t.Context(), r.ID, []failed.Refusal{{ID: id, Why: "it is <b>larger</b> than 16 MiB"}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/messages/1": "could not send it:</strong> it is &lt;b&gt;larger&lt;/b&gt; than 16 MiB",
		"/replays/1":  "<strong>1</strong> cannot be sent as they are",
	} {
		if w := ask(t, c, "GET", path, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s does not say %q: %d %s", path, want, w.Code, w.Body)
		}
	}
}
