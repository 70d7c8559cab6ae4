package console

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

// submitForm returns the body of a form and a function that sets the headers of a browser.
func submitForm(v url.Values) (any, func(*http.Request)) {
	return v.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
}

func post(t *testing.T, c *Console, path string, v url.Values, change ...func(*http.Request)) (status int, location, body string) {
	t.Helper()
	form, asForm := submitForm(v)
	w := ask(t, c, "POST", path, form, append(change, asForm)...)
	return w.Code, w.Header().Get("Location"), w.Body.String()
}

var tags = regexp.MustCompile(`<[^>]*>`)

// Every page shows the contents of messages as plain text, and contains no inline script or style.
func TestPagesShowMarkupAsText(t *testing.T) {
	for _, text := range hostileTexts {
		a := newArchive(t, store.Config{})
		id := add(t, a, func(m *failed.Message) {
			m.Queue, m.FailedQueue, m.Exchange, m.RoutingKey, m.Error, m.Reason = text, text, text, text, text, text
			m.Errors[0].Error, m.Errors[0].Host = text, text
			m.Content = failed.Content{
				Body:       []byte(text),
				Headers:    topology.Table{text: text, "deep": deep(), "array": []any{text, []byte(text)}},
				Properties: failed.Properties{ContentType: text, MessageID: text, CorrelationID: text, ReplyTo: text, Type: text},
			}
		})
		c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
		if err := a.Edit(t.Context(), id, 0, failed.Content{Body: []byte(text + "!"), Headers: topology.Table{text: text + "!"}}, failed.Actor(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{add(t, a, nil)}}, text+"!", failed.Actor(text)); err != nil {
			t.Fatal(err)
		}
		messages := web.HrefMessages("/messages", failed.Filter{Text: text, Queue: params.Text(text), Error: text, Headers: map[string]string{text: text}})
		for _, path := range []string{
			"/", "/groups", string(web.HrefGroups(params.Text(text))), "/groups/1", "/messages?state=all", string(messages), "/messages?" + url.Values{"text": {text}}.Encode(),
			fmt.Sprintf("/messages/%d", id), fmt.Sprintf("/messages/%d/edit", id), fmt.Sprintf("/messages/%d/revisions/1", id), "/messages/2", "/replays/new?id=1", "/discard?id=1", "/topology", "/audit",
			"/groups?state=" + url.QueryEscape(text), "/login?next=" + url.QueryEscape(text),
		} {
			w := ask(t, c, "GET", path, nil)
			if w.Code >= 500 {
				t.Errorf("GET %s: got status %d, want less than 500", path, w.Code)
			}
			body := strings.ReplaceAll(w.Body.String(), `<script src="/assets/`, "")
			for _, markup := range []string{"<script", "<img", "<h1>Set", "<svg onload", "<style", " style=", " onerror=alert(1)>", "javascript:"} {
				if strings.Contains(body, markup) {
					t.Errorf("%s contains the markup %s, for %q", path, markup, text)
				}
			}
			if strings.ContainsFunc(tags.ReplaceAllString(w.Body.String(), ""), brief.Odd) {
				t.Errorf("%s contains an invisible character, for %q", path, text)
			}
		}
	}
}

// Pages show only controls that the role of the user permits.
func TestPagesByRole(t *testing.T) {
	list, secrets := tokens()
	c := newConsole(t, Config{Tokens: list, Replayer: &fakeReplayer{}})
	add(t, c.cfg.Archive, nil)
	for path, action := range map[string]string{
		"/messages/1": `action="/replays"`, "/messages": `name="id"`, "/groups/1": "/replays/new?",
	} {
		for role := View; role <= Admin; role++ {
			w := ask(t, c, "GET", path, nil, bearer(secrets[role]))
			if has := strings.Contains(w.Body.String(), action); w.Code != http.StatusOK || has != (role >= Operate) {
				t.Errorf("%s as %s: got status %d, want 200, contains %s: %v, want %v", path, role, w.Code, action, has, role >= Operate)
			}
		}
	}
}

// Administrators see secrets. Users without the role Admin neither see secrets, nor overwrite them with the displayed
// placeholder.
func TestPagesHideSecrets(t *testing.T) {
	list, secrets := tokens()
	a := newArchive(t, store.Config{Redact: []failed.Rule{{Header: "x-token"}, {Path: "card.number"}}})
	id := add(t, a, nil)
	m, err := a.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	edited := m.Content
	edited.Properties.Type = "edited"
	if err := a.Edit(t.Context(), id, m.Revision, edited, "somebody"); err != nil {
		t.Fatal(err)
	}
	if err := a.Revert(t.Context(), id, m.Revision+1, "somebody"); err != nil {
		t.Fatal(err)
	}
	c := newConsole(t, Config{Archive: a, Tokens: list, Replayer: &fakeReplayer{}})
	for _, path := range []string{"/messages/1", "/messages/1/body", "/messages/1/edit", "/messages/1/revisions/1"} {
		for role := View; role <= Admin; role++ {
			body := ask(t, c, "GET", path, nil, bearer(secrets[role])).Body.String()
			if has := strings.Contains(body, "4111") || strings.Contains(body, "hunter2"); has != (role == Admin) {
				t.Errorf("%s shows secrets to %s: %v, want %v", path, role, has, role == Admin)
			}
		}
	}
	status, _, _ := post(t, c, "/messages/1/edit", url.Values{"base": {"0"}, "revision": {"0"}, "body": {"{}"}, "do": {"save"}}, bearer(secrets[Operate]))
	if m, err := a.Get(t.Context(), id); status != http.StatusForbidden || err != nil || m.Edited != nil {
		t.Errorf("edit: got status %d, want 403, content %v, error %v", status, m.Edited, err)
	}
}

// The history of a message links to the changes that each edit made.
func TestRevisionPage(t *testing.T) {
	c := newConsole(t, Config{})
	id := add(t, c.cfg.Archive, nil)
	for seen, body := range []string{`{"order":18}`, `{"order":19}`} {
		if err := c.cfg.Archive.Edit(t.Context(), id, seen, failed.Content{Body: []byte(body)}, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if body := ask(t, c, "GET", "/messages/1", nil).Body.String(); !strings.Contains(body, `href="/messages/1/revisions/1"`) {
		t.Error("page does not link to the revision")
	}
	w := ask(t, c, "GET", "/messages/1/revisions/1", nil)
	if body := tags.ReplaceAllString(w.Body.String(), ""); w.Code != http.StatusOK || !strings.Contains(body, "by ann") || !strings.Contains(body, "18") || strings.Contains(body, "19") {
		t.Errorf("revision: got status %d, want 200; body %s", w.Code, body)
	}
	for path, want := range map[string]int{"/messages/1/revisions/3": 404, "/messages/1/revisions/x": 404, "/messages/2/revisions/1": 404} {
		if w := ask(t, c, "GET", path, nil); w.Code != want {
			t.Errorf("GET %s: got status %d, want %d", path, w.Code, want)
		}
	}
}

func TestPageDiscardAndRestore(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	add(t, c.cfg.Archive, nil)
	if status, _, body := post(t, c, "/discard", url.Values{"id": {"1"}, "reason": {" "}}); status != http.StatusUnprocessableEntity || !strings.Contains(body, "Enter a reason.") {
		t.Errorf("discard without a reason: got status %d, want 422", status)
	}
	status, location, _ := post(t, c, "/discard", url.Values{"id": {"1"}, "reason": {"paid by hand"}})
	if want := "/messages/1?did=discarded&n=1&undo=1"; status != http.StatusSeeOther || location != want {
		t.Errorf("discard: status %d, location %s, want %s", status, location, want)
	}
	if body := ask(t, c, "GET", location, nil).Body.String(); !strings.Contains(body, "1 message discarded.") || !strings.Contains(body, "paid by hand") {
		t.Errorf("page does not show the discard: %s", body)
	}
	if status, location, _ = post(t, c, "/restore", url.Values{"id": {"1"}}); status != http.StatusSeeOther || location != "/messages/1?did=restored&n=1" {
		t.Errorf("restore: got status %d, want 303, got location %s, want /messages/1?did=restored&n=1", status, location)
	}
	if m, err := c.cfg.Archive.Get(t.Context(), 1); err != nil || m.State != failed.Failed {
		t.Errorf("restored message: got state %s, want %s; error %v", m.State, failed.Failed, err)
	}
}

func TestPageBeginsReplay(t *testing.T) {
	w := &fakeReplayer{}
	c := newConsole(t, Config{Replayer: w})
	for range 3 {
		add(t, c.cfg.Archive, nil)
	}
	status, location, _ := post(t, c, "/replays", url.Values{
		"group": {"1"}, "at_most": {"3"}, "options": {"yes"}, "to": {"other"}, "exchange": {"x"}, "key": {"k"}, "rate": {"2.5"}, "ramp": {"yes"}, "canary": {"30s"},
	})
	if status != http.StatusSeeOther || location != "/replays/1" || w.wakes.Load() != 1 {
		t.Fatalf("replay: got status %d, want 303, got location %s, want /replays/1, Wake called %d times, want 1", status, location, w.wakes.Load())
	}
	r, err := c.cfg.Archive.Replay(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plan
	if r.Total != 3 || p.To == nil || *p.To != (failed.Target{Exchange: "x", RoutingKey: "k"}) || p.Rate != 2.5 || !p.Ramp || p.Canary.Seconds() != 30 || !p.IgnoreSame {
		t.Errorf("plan: got %+v for %d messages, want 3", p, r.Total)
	}
	if status, location, _ = post(t, c, "/replays/1/cancel", nil); status != http.StatusSeeOther || location != "/replays/1" {
		t.Errorf("cancel: got status %d, want 303, got location %s, want /replays/1", status, location)
	}
	if body := ask(t, c, "GET", "/replays/1", nil).Body.String(); !strings.Contains(body, "cancelled") {
		t.Error("page does not show that the replay is cancelled")
	}
	// By default, a replay sends messages to their original destinations, and stops if a message fails again with the
	// same error.
	if status, _, _ = post(t, c, "/replays", url.Values{"id": {"2"}}); status != http.StatusSeeOther {
		t.Errorf("replay without options: got status %d, want 303", status)
	}
	if r, err = c.cfg.Archive.Replay(t.Context(), 2); err != nil || r.Total != 1 || r.Plan.IgnoreSame || r.Plan.To != nil {
		t.Errorf("replay without options: got %+v, want Total 1, Plan.To nil; error %v", r, err)
	}
	for name, v := range map[string]url.Values{
		"rate": {"id": {"1"}, "rate": {"fast"}}, "canary": {"id": {"1"}, "canary": {"soon"}}, "to": {"id": {"1"}, "to": {"other"}},
	} {
		if status, _, _ := post(t, c, "/replays", v); status != http.StatusUnprocessableEntity {
			t.Errorf("invalid %s: got status %d, want 422", name, status)
		}
	}
}

// Browsers download an asset once, and then revalidate it with its ETag.
func TestAssets(t *testing.T) {
	c := newConsole(t, Config{})
	for name, kind := range map[string]string{
		"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
		"htmx.min.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml", "htmx.LICENSE": "text/plain; charset=utf-8",
	} {
		w := ask(t, c, "GET", "/assets/"+name, nil)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != kind || w.Body.Len() == 0 {
			t.Errorf("%s: got status %d, want 200, got type %s, want %s", name, w.Code, got, kind)
		}
		if again := ask(t, c, "GET", "/assets/"+name, nil, header("If-None-Match", w.Header().Get("ETag"))); again.Code != http.StatusNotModified {
			t.Errorf("%s with If-None-Match: got status %d, want 304", name, again.Code)
		}
	}
	if w := ask(t, c, "GET", "/assets/none.js", nil); w.Code != http.StatusNotFound {
		t.Errorf("missing asset: got status %d, want 404", w.Code)
	}
}
