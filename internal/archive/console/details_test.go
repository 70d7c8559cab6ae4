package console

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// A list of messages with one error shows their bodies instead of the error, without the secrets that the visitor may not see.
func TestListsShowDetails(t *testing.T) {
	c := newConsole(t, Config{})
	for _, body := range []string{`{"order": 4711}`, `{"order": 4712}`} {
		if _, err := c.cfg.Archive.Add(t.Context(), []failed.Message{{Queue: "orders", Error: "declined", Content: failed.Content{Body: []byte(body)}}}); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/groups/1": `{&#34;order&#34;: 4711}`, "/messages": `{&#34;order&#34;: 4712}`, "/api/v1/messages?group=1": `"detail":"{\"order\": 4711}"`} {
		if body := ask(t, c, "GET", path, nil).Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s: got %s, want %s", path, body, want)
		}
	}
}
