package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// twoFailed returns a console with two messages in state failed, and a function that checks that no action has changed
// them.
func twoFailed(t *testing.T) (*Console, func()) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	add(t, a, func(m *failed.Message) { m.Queue = "mails" })
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	return c, func() {
		t.Helper()
		w := ask(t, c, "GET", "/api/v1/messages?state=failed", nil)
		if n := len(get[api.Messages](t, w).Messages); n != 2 {
			t.Errorf("messages in state failed: got %d, want 2: %s", n, w.Body)
		}
		if acts := get[api.Acts](t, ask(t, c, "GET", "/api/v1/acts", nil)).Acts; len(acts) != 0 {
			t.Errorf("audit log is not empty: %+v", acts)
		}
	}
}

// Almost every error contains a space, so an action that selects messages by a space would apply to almost all messages.
func TestFilterRejectsBlankText(t *testing.T) {
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
		// Sentences on a page start with a capital letter.
		for _, path := range []string{"/messages?", "/discard?", "/restore?", "/replays/new?"} {
			w := ask(t, c, "GET", path+name+"=+", nil)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), name[1:]+" must not be blank") {
				t.Errorf("GET %s%s=+: got status %d, want 400; body %.200s", path, name, w.Code, w.Body)
			}
		}
		status, _, page := post(t, c, "/discard", url.Values{name: {" "}, "reason": {"x"}})
		if status != http.StatusBadRequest || !strings.Contains(page, name[1:]+" must not be blank") {
			t.Errorf("form with blank %s: got status %d, want 400; body %.200s", name, status, page)
		}
	}
	// An empty field of the search form does not set a condition.
	if w := ask(t, c, "GET", "/messages?error=&text=&state=failed", nil); w.Code != http.StatusOK {
		t.Errorf("search without conditions: got status %d, want 200; body %s", w.Code, w.Body)
	}
	unchanged()
}

// The name of a queue, and the name or value of a header, can consist of spaces. A filter compares the whole string, so
// it selects only messages with exactly this string.
func TestFilterAcceptsBlankQueueAndHeader(t *testing.T) {
	c, unchanged := twoFailed(t)
	for _, filter := range []string{`{"queue":" "}`, `{"headers":{"tenant":" "}}`, `{"headers":{" ":" "}}`} {
		w := ask(t, c, "POST", "/api/v1/discard", `{"filter":`+filter+`,"reason":"x"}`)
		if n := get[api.Done](t, w).Messages; n != 0 {
			t.Errorf("%s: got %d messages, want 0", filter, n)
		}
	}
	unchanged()
}

// A body is ambiguous if a name in an object is repeated, or differs from a known name only in case.
func TestAPIRejectsAmbiguousNames(t *testing.T) {
	c, unchanged := twoFailed(t)
	for _, tc := range []struct{ method, path, body, want string }{
		{"POST", "discard", `{"Filter":{"queue":"mails"},"reason":"x"}`, `unknown field “Filter”`},
		{"POST", "discard", `{"Filter":{"queue":"mails"},"filter":{},"all":true,"reason":"x"}`, `unknown field “Filter”`},
		{"POST", "discard", `{"filter":{"QUEUE":"mails"},"reason":"x"}`, `unknown field “QUEUE”`},
		{"POST", "discard", `{"filter":{"queue":"mails"},"reaſon":"x"}`, `unknown field “reaſon”`},
		{"POST", "discard", `{"filter":{"queue":"mails","queue":"orders"},"reason":"x"}`, `field “queue” is repeated`},
		{"POST", "discard", `{"filter":{"queue":"mails","qu\u0065ue":"orders"},"reason":"x"}`, `field “queue” is repeated`},
		{"POST", "discard", `{"filter":{"queue":"mails"},"filter":{"error":"card"},"reason":"x"}`, `field “filter” is repeated`},
		{"POST", "discard", `{"filter":{"headers":{"tenant":"acme","tenant":"other"}},"reason":"x"}`, `field “tenant” is repeated`},
		{"POST", "discard", `{"filter":{"headers":{"tenant":"other","base64:dGVuYW50":"acme"}},"reason":"x"}`, `field “base64:dGVuYW50” is repeated`},
		{"POST", "discard", `{"filter":{"queue":"mails","at_most":1},"reason":"x"}`, `unknown field “at_most”`},
		{"POST", "discard", `{"filter":{"all":true},"reason":"x"}`, `unknown field “all”`},
		{"POST", "restore", `{"all":false,"all":true}`, `field “all” is repeated`},
		{"POST", "replays", `{"all":true,"to":{"exchange":"","Routing_Key":"orders"}}`, `unknown field “Routing_Key”`},
		{"POST", "replays", `{"all":true,"to":{"exchange":"","routing_key":"a","routing_key":"b"}}`, `field “routing_key” is repeated`},
		{"POST", "replays/1/cancel", `{"reason":"x","reason":"y"}`, `field “reason” is repeated`},
		{"PUT", "messages/1/edit", `{"revision":0,"Revision":1,"text":"a"}`, `unknown field “Revision”`},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"a":"x","a":"y"}}`, `field “a” is repeated`},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"t":{"table":{"a":"x","a":"y"}}}}`, `field “a” is repeated`},
		{"PUT", "messages/1/edit", `{"revision":0,"properties":{"Message_ID":"x"}}`, `unknown field “Message_ID”`},
		{"POST", "messages/1/replay", `{"revision":0,"text":"a","TO":{"exchange":"","routing_key":"q"}}`, `unknown field “TO”`},
		{"POST", "ledger/accept", `{"account":"a","account":"b","reason":"x"}`, `field “account” is repeated`},
	} {
		w := ask(t, c, tc.method, "/api/v1/"+tc.path, tc.body)
		if err := checkRefused(w, http.StatusBadRequest, tc.want); err != nil {
			t.Errorf("%s %s %s: %v", tc.method, tc.path, tc.body, err)
		}
	}
	unchanged()
	// Header names may differ only in case, and an array may contain equal objects.
	edit := `{"revision":0,"headers":{"a":"x","A":"y","filter":[{"int32":1},{"int32":1}]}}`
	if m := get[api.Message](t, ask(t, c, "PUT", "/api/v1/messages/1/edit", edit)); m.Revision != 1 {
		t.Errorf("revision: got %d, want 1", m.Revision)
	}
}

// Each operation in the OpenAPI description succeeds, with a response that matches the description.
func TestOperationsMatchDescription(t *testing.T) {
	a := newArchive(t, store.Config{Retention: 1 << 62})
	add(t, a, nil)
	add(t, a, nil)
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}, Ledger: newFakeLedger(t).Ledger, Fleet: withKeys(), History: newPast(t), Broker: newBroker(t), Rescheduler: &fakeRescheduler{}, Management: emptyBroker(t), Outbox: withBox(t, newBox(t)).Outbox}))
	for _, line := range []string{
		"GET ledger", `POST ledger/accept {"account":"orders","reason":"x"}`, "GET openapi.json", "GET me", "GET messages", "GET messages/count", "GET messages/export", "GET messages/1",
		"GET messages/1/body", `PUT messages/1/edit {"revision":0,"text":"a"}`, "GET messages/1/diff", "GET messages/1/revisions", "GET messages/1/revisions/1",
		"DELETE messages/1/edit?revision=1", `POST discard {"all":true,"reason":"x"}`, `POST restore {"all":true}`, `POST erase {"filter":{"text":"nobody"},"reason":"x"}`, "POST purge",
		"GET groups", "GET groups/1", `PUT groups/1/mute {}`, "DELETE groups/1/mute", `POST groups/merge {"groups":[1],"name":"renamed"}`, `POST groups/regroup {}`, "DELETE groups/2/merge", "GET queues", `POST replays {"filter":{"ids":[1]}}`, "GET replays", "GET replays/1",
		`POST replays/1/cancel {}`, `POST messages/1/replay {"revision":0,"text":"b"}`, "GET acts", `POST publish {"exchange":"","routing_key":"orders","text":"x"}`, `POST queues/peek {"queue":"orders"}`, `POST queues/purge {"queue":"orders","limit":1,"reason":"x"}`, "GET workers", `POST workers/pause {"queue":"orders"}`, `POST workers/resume {"queue":"orders"}`, `POST workers/keys {"queue":"payments","do":"park"}`, "GET doctor", "GET history?range=7d", "GET marks", `POST marks {"text":"v2.5","time":"2026-03-01T11:00:00Z"}`, "DELETE marks/1", "GET waiting", "GET waiting/summary", `POST waiting/retry {"all":true,"filter":{}}`, `POST waiting/postpone {"all":true,"filter":{},"delay":"1h"}`, `POST waiting/park {"all":true,"filter":{}}`,
		"GET scheduled", "GET scheduled/status", "GET scheduled/1", `POST scheduled/move {"all":true,"filter":{},"in":"1h"}`, `POST scheduled/cancel {"all":true,"filter":{}}`, "GET cron", `POST cron/run {"name":"nightly"}`, `POST cron/remove {"name":"nightly"}`,
	} {
		method, rest, _ := strings.Cut(line, " ")
		path, body, _ := strings.Cut(rest, " ")
		if w := ask(t, d, method, "/api/v1/"+path, body); w.Code > 299 {
			t.Errorf("%s: got status %d, want 2xx; body %s", line, w.Code, w.Body)
		}
	}
	if w := ask(t, d, "POST", "/api/v1/messages/import", "\n", header("Content-Type", "application/x-ndjson")); w.Code != http.StatusOK {
		t.Errorf("import: got status %d, want 200; body %s", w.Code, w.Body)
	}
	for name := range operations(d.doc) {
		if !d.seen[name] {
			t.Errorf("%s was not tested", name)
		}
	}
}
