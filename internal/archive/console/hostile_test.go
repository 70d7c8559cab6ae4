package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// hostileTexts are strings that an attacker could publish, so that the console displays them to users.
var hostileTexts = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	"a\r\nSet-Cookie: a=b\r\n\r\n<h1>",
	"\x00\x01\x1b[31m\x7f",
	"\xff\xfe\xc3\x28",
	"base64:AAAA",
	"\u202egnp.exe\u2028",
	`{"type":"string","value":1}`,
	"${jndi:ldap://x}", "'; DROP TABLE messages; --", `" OR 1=1`, "{{.}}", "%s%n",
}

// sameBytes compares bodies with bytes.Equal, because package cmp takes seconds to compare a large body.
var sameBytes = cmp.Comparer(bytes.Equal)

// deep returns a table with the maximum nesting depth that an archive accepts.
func deep() topology.Table {
	t := topology.Table{"end": "x"}
	for range 98 {
		t = topology.Table{"t": t}
	}
	return t
}

// The API returns the contents of a message unchanged, and every response is valid JSON in UTF-8.
func TestAPIReturnsHostileMessagesUnchanged(t *testing.T) {
	const large = 2 * web.SmallBody
	if room := web.EditBody - base64.StdEncoding.EncodedLen(16<<20); room < 1<<20 { // RabbitMQ's max_message_size
		t.Errorf("space in an edit for more than the largest body: got %d bytes, want at least %d", room, 1<<20)
	}
	contents := map[string]failed.Content{
		"large":        {Body: append(bytes.Repeat([]byte("<b>&\"\x01"), large/12), make([]byte, large/2)...)},
		"deep":         {Body: []byte(strings.Repeat("[", 100_000)), Headers: deep()},
		"many headers": {Headers: topology.Table{}},
	}
	for i := range 5000 {
		contents["many headers"].Headers[strings.Repeat("h", i%50)+string(rune(i+256))] = "<i>"
	}
	for _, text := range hostileTexts {
		contents[text] = failed.Content{
			Body: []byte(text),
			Headers: topology.Table{
				text: text, "array": []any{text, topology.Table{text: []byte(text)}}, "x-token": text,
			},
			Properties: failed.Properties{
				ContentType: text, ContentEncoding: text, CorrelationID: text, ReplyTo: text, MessageID: text, Type: text,
				AppID: text, UserID: text, Expiration: text, Exchange: text, RoutingKey: text,
			},
		}
	}
	for name, content := range contents {
		t.Run(strings.ToValidUTF8(strings.Map(printable, name), "?"), func(t *testing.T) {
			a := newArchive(t, store.Config{})
			id := add(t, a, func(m *failed.Message) {
				m.Content = content
				if len(name) < 100 {
					m.Queue, m.FailedQueue, m.Exchange, m.RoutingKey, m.Error, m.Reason = name, name, name, name, name, name
					m.Errors[0].Error, m.Errors[0].Host = name, name
				}
			})
			d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}}))

			shown := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil))
			want, err := a.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Content, shown.Original.Content(), sameBytes); diff != "" {
				t.Fatalf("content: %.2000s", diff)
			}
			if string(shown.Queue) != want.Queue {
				t.Errorf("queue %q, want %q", shown.Queue, want.Queue)
			}

			w := ask(t, d, "GET", "/api/v1/messages/1/body", nil)
			if !bytes.Equal(w.Body.Bytes(), content.Body) {
				t.Error("body differs from the original")
			}
			h := w.Header()
			if h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment;") {
				t.Errorf("browser could display the body: %v", h)
			}

			// An edit without changes does not create a revision. An edit that adds a header creates a revision, and does not
			// change anything else.
			edit := api.Edit{Revision: new(0), Body: &shown.Original.Body, Headers: &shown.Original.Headers, Properties: &shown.Original.Properties}
			if m := get[api.Message](t, ask(t, d, "PUT", "/api/v1/messages/1/edit", edit)); m.Revision != 0 {
				t.Errorf("edit without changes: got revision %d, want 0", m.Revision)
			}
			more := api.Headers(maps.Clone(topology.Table(shown.Original.Headers)))
			more["added by hand"] = true
			edit.Headers = &more
			get[api.Message](t, ask(t, d, "PUT", "/api/v1/messages/1/edit", edit))
			again, err := a.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			delete(again.Edited.Headers, "added by hand")
			if diff := cmp.Diff(want.Content, *again.Edited, sameBytes); diff != "" {
				t.Errorf("edited message: %.2000s", diff)
			}

			for _, path := range []string{"messages", "groups", "queues", "ledger", "messages/1/diff", "messages/1/revisions", "messages/1/revisions/1", "acts"} {
				w := ask(t, d, "GET", "/api/v1/"+path, nil)
				if w.Code != http.StatusOK || !utf8.Valid(w.Body.Bytes()) || !json.Valid(w.Body.Bytes()) {
					t.Errorf("%s: got status %d, want 200; body %.200q", path, w.Code, w.Body)
				}
			}
			f := failed.Filter{Queue: shown.Queue}
			if page := get[api.Messages](t, ask(t, d, "GET", "/api/v1/messages?"+f.Values().Encode(), nil)); len(page.Messages) != 1 {
				t.Errorf("filter by queue: got %d messages, want 1", len(page.Messages))
			}
		})
	}
}

func printable(r rune) rune {
	if access.Unprintable(r) {
		return '_'
	}
	return r
}

// For any query, the API returns a list or an error with status 400.
func TestAPIAcceptsHostileQueries(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	list, secrets := tokens()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list}))
	for _, text := range append(hostileTexts, strings.Repeat("a ", 2000), strings.Repeat("x", 100_000)) {
		for _, name := range append([]string{"after", "size", "nonsense", text}, failed.FilterNames...) {
			query := failed.Filter{}.Values()
			query.Set(name, text)
			w := ask(t, d, "GET", "/api/v1/messages?"+query.Encode(), nil, bearer(secrets[View]))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Errorf("%.40q=%.40q: status %d, body %s", name, text, w.Code, w.Body)
			}
		}
		query := failed.Filter{Headers: map[string]string{text: text}}.Values()
		if w := ask(t, d, "GET", "/api/v1/messages?"+query.Encode(), nil, bearer(secrets[View])); w.Code != http.StatusOK {
			t.Errorf("header %.40q: got status %d, want 200; body %.200s", text, w.Code, w.Body)
		}
		w := ask(t, d.Console, "GET", "/api/v1/me", nil, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + text} }, from("192.0.2.7:1"))
		if w.Code != http.StatusUnauthorized && w.Code != http.StatusTooManyRequests {
			t.Errorf("token %.40q: got status %d, want 401 or 429", text, w.Code)
		}
	}
}

// An error contains the input only in a JSON string, and never in a header.
func TestErrorsEscapeInput(t *testing.T) {
	d := newConsole(t, Config{})
	for _, text := range hostileTexts {
		query := failed.Filter{}.Values()
		query.Set(text, "1")
		w := ask(t, d, "GET", "/api/v1/messages?"+query.Encode(), nil)
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Set-Cookie") != "" || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%q: header %v, body %s", text, w.Header(), w.Body)
		}
		refused(t, w, http.StatusBadRequest, "unknown parameter")
	}
}
