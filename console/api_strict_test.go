package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// twoFailed returns a console with two messages in state failed, and a function that checks
// that no act has changed them.
func twoFailed(t *testing.T) (*Console, func()) {
	a := newArchive(t, failed.Config{})
	add(t, a, nil)
	add(t, a, func(m *failed.Message) { m.Queue = "mails" })
	c := newConsole(t, Config{Archive: a, Replayer: &waker{}})
	return c, func() {
		t.Helper()
		w := ask(t, c, "GET", "/api/v1/messages?state=failed", nil)
		if n := len(get[api.Messages](t, w).Messages); n != 2 {
			t.Errorf("%d messages are in state failed, want 2: %s", n, w.Body)
		}
		if acts := get[api.Acts](t, ask(t, c, "GET", "/api/v1/acts", nil)).Acts; len(acts) != 0 {
			t.Errorf("acts are on record: %+v", acts)
		}
	}
}

// A text of blanks is in almost every error: an act on it is an act on all messages that
// nobody asked for.
func TestFilterOfBlanks(t *testing.T) {
	c, unchanged := twoFailed(t)
	for _, name := range []string{"error", "text"} {
		for _, blanks := range []string{" ", `\t\r\n`, `\u00a0 \u2003`} {
			for _, path := range []string{"discard", "discard?dry_run=true", "restore", "replays", "replays?dry_run=true"} {
				body := `{"filter":{"` + name + `":"` + blanks + `"}`
				if strings.HasPrefix(path, "discard") {
					body += `,"reason":"x"`
				}
				refused(t, ask(t, c, "POST", "/api/v1/"+path, body+"}"), http.StatusBadRequest, name+" must not be blank")
			}
		}
		for _, path := range []string{"/api/v1/messages?", "/api/v1/messages/count?", "/api/v1/messages/export?"} {
			refused(t, ask(t, c, "GET", path+name+"=+", nil), http.StatusBadRequest, name+" must not be blank")
		}
		// A page begins its sentence with a capital.
		for _, path := range []string{"/messages?", "/discard?", "/restore?", "/replays/new?"} {
			w := ask(t, c, "GET", path+name+"=+", nil)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), name[1:]+" must not be blank") {
				t.Errorf("GET %s%s=+: %d %.200s", path, name, w.Code, w.Body)
			}
		}
		status, _, page := post(t, c, "/discard", url.Values{name: {" "}, "reason": {"x"}})
		if status != http.StatusBadRequest || !strings.Contains(page, name[1:]+" must not be blank") {
			t.Errorf("a form with the %s of blanks: %d %.200s", name, status, page)
		}
	}
	// A field of the search form that is left empty sets no condition.
	if w := ask(t, c, "GET", "/messages?error=&text=&state=failed", nil); w.Code != http.StatusOK {
		t.Errorf("the search form without conditions: %d %s", w.Code, w.Body)
	}
	unchanged()
}

// A queue or a header may consist of blanks: it is compared as a whole, and so it selects
// only the messages that have it.
func TestQueueAndHeaderOfBlanks(t *testing.T) {
	c, unchanged := twoFailed(t)
	for _, filter := range []string{`{"queue":" "}`, `{"headers":{"tenant":" "}}`, `{"headers":{" ":" "}}`} {
		w := ask(t, c, "POST", "/api/v1/discard", `{"filter":`+filter+`,"reason":"x"}`)
		if n := get[api.Done](t, w).Messages; n != 0 {
			t.Errorf("%s selects %d messages, want 0", filter, n)
		}
	}
	unchanged()
}
