package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

func TestListByFilter(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	add(t, a, func(m *failed.Message) {
		m.Queue, m.Error, m.Attempts = "mails", "no such mailbox", 1
		m.Headers = topology.Table{"a:b%": "x:y", "n": int32(5)}
	})
	add(t, a, func(m *failed.Message) { m.Queue, m.LastFailed = "caf\xe9", noon.Add(-2*time.Hour) })
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	for query, want := range map[string][]int64{
		"":                                   {2, 1, 3},
		"queue=mails":                        {2},
		"queue=caf%E9":                       {3},
		"queue=base64:Y2Fm6Q==":              {3},
		"state=failed&state=discarded":       {2, 1, 3},
		"state=replayed":                     {},
		"since=2026-03-01T12:00:00Z":         {2, 1},
		"until=2026-03-01T13:00:00%2B01":     nil, // not a time
		"until=2026-03-01T12:00:00Z":         {3},
		"text=mailbox":                       {2},
		"error=such+mail":                    {2},
		"header=a%253Ab%2525:x:y":            {2},
		"state=all":                          {2, 1, 3},
		"state=none":                         {},
		"id=none":                            {},
		"since=2026-03-01":                   {2, 1, 3},
		"header=n:5&header=a%253Ab%2525:x:y": {2},
		"header=tenant:acme":                 {1, 3},
		"min_attempts=2":                     {1, 3},
		"max_attempts=2":                     {2},
		"id=1&id=3":                          {1, 3},
	} {
		w := ask(t, d, "GET", "/api/v1/messages?"+query, nil)
		if want == nil {
			refused(t, w, http.StatusBadRequest, "write 2026-")
			continue
		}
		ids := []int64{}
		for _, m := range get[api.Messages](t, w).Messages {
			ids = append(ids, m.ID)
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
		total := get[store.Total](t, ask(t, d, "GET", "/api/v1/messages/count?"+query, nil))
		if total.N != int64(len(want)) || total.More {
			t.Errorf("count for %s: got %+v, want %d", query, total, len(want))
		}
	}
}

func TestListByPage(t *testing.T) {
	a := newArchive(t, store.Config{})
	for range 5 {
		add(t, a, nil)
	}
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	var ids []int64
	after := ""
	for range 10 {
		page := get[api.Messages](t, ask(t, d, "GET", "/api/v1/messages?size=2"+after, nil))
		for _, m := range page.Messages {
			ids = append(ids, m.ID)
		}
		if after = "&after=" + page.Next; page.Next == "" {
			break
		}
	}
	if diff := cmp.Diff([]int64{5, 4, 3, 2, 1}, ids); diff != "" {
		t.Error(diff)
	}
}

// The error for invalid input suggests valid input, and the request has no effect.
func TestAPIRefusesInvalidInput(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}}))
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "messages?quee=orders", "", 400, `unknown parameter “quee”: use queue, state`},
		{"GET", "messages?queue=a&queue=b", "", 400, `“queue” must have one value: got 2 values`},
		{"GET", "messages?queue=base64:!", "", 400, "base64"},
		{"GET", "messages?state=dead", "", 400, "use failed, replaying, replayed or discarded"},
		{"GET", "messages?group=x", "", 400, "is not a positive integer"},
		{"GET", "messages?min_attempts=-1", "", 400, "is not a positive integer"},
		{"GET", "messages?min_attempts=3&max_attempts=2", "", 400, "swap them"},
		{"GET", "messages?since=yesterday", "", 400, "write 2026-01-31T12:00:00Z"},
		{"GET", "messages?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "", 400, "swap them"},
		{"GET", "messages?header=tenant", "", 400, "is not NAME:VALUE"},
		{"GET", "messages?id=", "", 400, `“id” must not be empty`},
		{"GET", "messages?id=1,2", "", 400, "write each as id=17"},
		{"GET", "messages?group=", "", 400, `“group” must not be empty`},
		{"GET", "messages?state=failed&state=all", "", 400, "use failed"},
		{"GET", "messages?group=9", "", 404, "group 9"},
		{"GET", "messages/count?replay=9", "", 404, "replay 9"},
		{"GET", "messages/export?refused_by=9", "", 404, "replay 9"},
		{"GET", "messages?id=1&id=9", "", 404, "message 9"},
		{"GET", "messages/1?state=failed", "", 400, "unknown parameter"},
		{"GET", "messages?after=", "", 400, `“after” must not be empty`},
		{"GET", "messages?size=0", "", 400, "must be an integer from 1 to 1000"},
		{"GET", "messages?size=1001", "", 400, "must be an integer from 1 to 1000"},
		{"GET", "messages?text=%zz", "", 400, "write special characters of a parameter as %XX"},
		{"GET", "messages/x", "", 400, "copy the number from a list"},
		{"GET", "messages/0", "", 400, "copy the number from a list"},
		{"GET", "messages/99999999999999999999", "", 400, "copy the number from a list"},
		{"GET", "messages/2", "", 404, "see the list"},
		{"GET", "messages/1/body?original=yes", "", 400, "use original=true"},
		{"GET", "groups/77", "", 404, "see the list"},
		{"GET", "groups?order=first", "", 400, "is not failed or last"},
		{"GET", "groups?state=dead", "", 400, "is not failed, replaying"},
		{"GET", "replays/77", "", 404, "see the list"},
		{"POST", "discard", `{"filter":{}}`, 400, "set all to true"},
		{"POST", "discard", `{"filter":{"states":["failed"]},"reason":"x"}`, 400, "set all to true"},
		{"POST", "discard", `{"filter":{"group":9},"reason":"x"}`, 404, "group 9"},
		{"POST", "discard?dry_run=true", `{"filter":{"group":9}}`, 404, "group 9"},
		{"POST", "discard", `{"filter":{"ids":[1,9]},"reason":"x"}`, 404, "message 9"},
		{"POST", "restore", `{"filter":{"ids":[9]}}`, 404, "message 9"},
		{"POST", "replays", `{"filter":{"group":9}}`, 404, "group 9"},
		{"POST", "replays?dry_run=true", `{"filter":{"refused_by":9}}`, 404, "replay 9"},
		{"POST", "discard", `{"filter":{"queue":"orders"},"at_most":-1,"reason":"x"}`, 400, "at_most"},
		{"POST", "discard?queue=orders", `{"all":true,"reason":"x"}`, 400, "unknown parameter"},
		{"POST", "discard", `{"filter":{"queue":"orders"},"all":true,"reason":"x"}`, 400, "all must not be combined with a filter"},
		{"POST", "discard", `{"filter":{"queue":"orders"}}`, 400, `send "reason"`},
		{"POST", "discard", `{"filter":{"queu":"orders"},"reason":"x"}`, 400, `unknown field “queu”`},
		{"POST", "discard", `{"filter":{"states":["dead"]},"reason":"x"}`, 400, "use failed, replaying"},
		{"POST", "discard", `{"filter":{"queue":"orders"},"reason":"x"} {}`, 400, "single JSON object"},
		{"POST", "discard", `{"filter":{"queue":"orders"},"reason":"` + "\xff" + `"}`, 400, "not valid UTF-8"},
		{"POST", "discard", `{`, 400, "cannot read the request body"},
		{"POST", "discard?dry_run=1", `{"all":true}`, 400, "use dry_run=true"},
		{"POST", "restore", `{}`, 400, "set all to true"},
		{"POST", "replays", `{}`, 400, "set all to true"},
		{"POST", "replays", `{"all":true,"canary":"soon"}`, 400, "is not a duration (examples: 90s"},
		{"POST", "replays", `{"all":true,"rate":-1}`, 400, "omit them"},
		{"POST", "replays", `{"filter":{"queue":"none"}}`, 422, "no selected message"},
		{"POST", "replays/7/cancel", `{}`, 404, ""},
		{"PUT", "messages/1/edit", `{"revision":0,"text":"a","body":"YQ=="}`, 400, "send one of them"},
		{"PUT", "messages/1/edit", `{"revision":0,"body":"not base64"}`, 400, "base64"},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"a":5}}`, 400, ""},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"a":{"int8":500}}}`, 400, "int8"},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`, 422, "only types that AMQP supports"},
		{"PUT", "messages/1/edit", `{"revision":0,"headers":{"a":` + strings.Repeat("[", 20000) + `}}`, 400, "cannot read the request body"},
		{"PUT", "messages/2/edit", `{"revision":0,"text":"a"}`, 404, ""},
		{"PUT", "messages/1/edit", `{"text":"a"}`, 400, `send "revision"`},
		{"PUT", "messages/1/edit", `{"revision":3,"text":"a"}`, 409, "nothing was changed"},
		{"DELETE", "messages/1/edit", ``, 400, "send revision="},
		{"DELETE", "messages/1/edit?revision=0", ``, 409, "nothing was changed"},
	} {
		w := ask(t, d, tc.method, "/api/v1/"+tc.path, tc.body)
		if err := checkRefused(w, tc.status, tc.want); err != nil {
			t.Errorf("%s %s %.80s: %v", tc.method, tc.path, tc.body, err)
		}
	}
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil)); m.State != "failed" || m.IsEdited {
		t.Errorf("a refused request changed the message: %+v", m.Summary)
	}
	refused(t, ask(t, d, "POST", "/api/v1/discard", `{"all":true,"reason":"x"}`, header("Content-Type", "text/plain")),
		http.StatusUnsupportedMediaType, "Content-Type: application/json")
	refused(t, ask(t, d, "POST", "/api/v1/discard", `{"all":true,"reason":"`+strings.Repeat("x", web.SmallBody)+`"}`),
		http.StatusRequestEntityTooLarge, "send at most 1048576 bytes")
}

func TestAPIUnknownRoutes(t *testing.T) {
	c := newConsole(t, Config{})
	refused(t, ask(t, c, "GET", "/api/v2/messages", nil), http.StatusNotFound, "openapi.json")
	refused(t, ask(t, c, "GET", "/api/v1/messages/1/2/3", nil), http.StatusNotFound, "openapi.json")
	w := ask(t, c, "POST", "/api/v1/messages/1/edit", nil)
	refused(t, w, http.StatusMethodNotAllowed, "use PUT or DELETE")
	if allow := w.Header().Get("Allow"); allow != "PUT, DELETE" {
		t.Errorf("Allow: got %q, want %q", allow, "PUT, DELETE")
	}
}

func TestEncryptedBodyIsNotEdited(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, func(m *failed.Message) { m.Content.Headers[encryption.Header] = "key" })
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	text := "{}"
	refused(t, ask(t, d, "PUT", "/api/v1/messages/1/edit", api.Edit{Revision: new(0), Text: &text}), http.StatusUnprocessableEntity, "from a program that has the key")
	headers := api.Headers{"tenant": "acme"}
	m := get[api.Message](t, ask(t, d, "PUT", "/api/v1/messages/1/edit", api.Edit{Revision: new(0), Text: &text, Headers: &headers}))
	if m.Edited == nil || *m.Edited.Text != text {
		t.Errorf("plain body instead of the encrypted body: got %+v", m.Edited)
	}
}

func TestEdit(t *testing.T) {
	a := newArchive(t, store.Config{})
	id := add(t, a, nil)
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	text := "{\n  \"order\": 18\n}\n"
	m := get[api.Message](t, ask(t, d, "PUT", "/api/v1/messages/1/edit", api.Edit{Revision: new(0), Text: &text}, header(access.ActorHeader, "cli:ann@desk")))
	if m.Edited == nil || string(m.Edited.Body) != text || *m.Edited.Text != text {
		t.Fatalf("edited message: got %+v, want the body %s", m.Edited, text)
	}
	if diff := cmp.Diff(m.Original.Headers, m.Edited.Headers); diff != "" {
		t.Errorf("the edit of the body changed headers: %s", diff)
	}

	headers := api.Headers{"tenant": "acme", "n": int8(3), "nested": topology.Table{"b": []byte{0}}}
	get[api.Message](t, ask(t, d, "PUT", "/api/v1/messages/1/edit", api.Edit{Revision: new(1), Headers: &headers, Properties: &api.Properties{Type: new(api.Text("x"))}}))
	whole, err := a.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := failed.Content{
		Body:       []byte(text),
		Headers:    topology.Table{"tenant": "acme", "n": int8(3), "nested": topology.Table{"b": []byte{0}}},
		Properties: failed.Properties{Type: "x"},
	}
	if diff := cmp.Diff(want, *whole.Edited); diff != "" {
		t.Errorf("edited message: %s", diff)
	}

	diff := get[api.Diff](t, ask(t, d, "GET", "/api/v1/messages/1/diff", nil))
	wantDiff := api.Diff{
		Body: "--- original\n+++ edited\n@@ -1 +1,3 @@\n-{\"order\":17,\"card\":{\"number\":\"4111\"}}\n\\ No newline at end of file\n+{\n+  \"order\": 18\n+}\n",
		Headers: "--- original\n+++ edited\n@@ -1,2 +1,3 @@\n+\"n\":{\"int8\":3}\n+\"nested\":{\"table\":{\"b\":{\"bytes\":\"AA==\"}}}\n" +
			" \"tenant\":\"acme\"\n-\"x-token\":\"hunter2\"\n",
		Properties: "--- original\n+++ edited\n@@ -1,3 +1 @@\n-\"content_type\":\"application/json\"\n-\"message_id\":\"m-17\"\n-\"routing_key\":\"orders.failed\"\n+\"type\":\"x\"\n",
	}
	if d := cmp.Diff(wantDiff, diff); d != "" {
		t.Error(d)
	}
	if body := ask(t, d, "GET", "/api/v1/messages/1/body", nil).Body.String(); body != text {
		t.Errorf("body: got %q, want %q", body, text)
	}
	if body := ask(t, d, "GET", "/api/v1/messages/1/body?original=true", nil).Body.Bytes(); string(body) != string(whole.Body) {
		t.Errorf("original body: got %q, want %q", body, whole.Body)
	}
	list := ask(t, d, "GET", "/api/v1/messages/1/revisions", nil)
	revisions := get[api.Revisions](t, list).Revisions
	if len(revisions) != 2 || revisions[0].Actor != "cli:ann@desk" || strings.Contains(list.Body.String(), "body") {
		t.Errorf("revisions: got %s, want 2 without bodies, the first by cli:ann@desk", list.Body)
	}
	first := get[api.Revision](t, ask(t, d, "GET", "/api/v1/messages/1/revisions/1", nil))
	if first.RevisionSummary != revisions[0] || string(first.Body) != text || first.Redacted {
		t.Errorf("revision 1: got %+v, want %+v with the body %s", first, revisions[0], text)
	}
	refused(t, ask(t, d, "GET", "/api/v1/messages/1/revisions/3", nil), http.StatusNotFound, "revision 3")
	refused(t, ask(t, d, "GET", "/api/v1/messages/1/revisions/0", nil), http.StatusBadRequest, "is not a positive number")
	if m := get[api.Message](t, ask(t, d, "DELETE", "/api/v1/messages/1/edit?revision=2", nil)); m.Edited != nil || m.IsEdited {
		t.Errorf("message is edited after the revert: %+v", m.Edited)
	}
	if diff := get[api.Diff](t, ask(t, d, "GET", "/api/v1/messages/1/diff", nil)); diff != (api.Diff{}) {
		t.Errorf("diff after the revert: got %+v, want %+v", diff, api.Diff{})
	}
}

func TestDiscardAndRestore(t *testing.T) {
	a := newArchive(t, store.Config{})
	for i := range 3 {
		add(t, a, func(m *failed.Message) { m.Queue = fmt.Sprintf("q%d", i%2) })
	}
	list, secrets := tokens()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list}))
	who := bearer(secrets[Operate])
	do := func(path, body string) api.Done {
		t.Helper()
		return get[api.Done](t, ask(t, d, "POST", "/api/v1/"+path, body, who))
	}
	q0 := `{"filter":{"queue":"q0"},"reason":"test data"}`
	if done := do("discard?dry_run=true", q0); done != (api.Done{Messages: 2, DryRun: true, Through: 3}) {
		t.Errorf("dry run of discard: got %+v, want 2 messages through 3", done)
	}
	if done := do("restore?dry_run=true", `{"all":true}`); done.Messages != 0 {
		t.Errorf("dry run discarded messages: %+v, want Messages 0", done)
	}
	if done := do("discard", q0); done != (api.Done{Messages: 2}) {
		t.Errorf("discard: got %+v, want %+v", done, api.Done{Messages: 2})
	}
	if done := do("discard?dry_run=true", `{"all":true}`); done.Messages != 1 {
		t.Errorf("dry run of discard for the other messages: got %+v, want Messages 1", done)
	}
	if done := do("discard?dry_run=true", `{"filter":{"queue":"q0","states":["discarded"]}}`); done.Messages != 0 {
		t.Errorf("dry run of discard for discarded messages: got %+v, want Messages 0", done)
	}
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil, who)); m.State != "discarded" || m.Discarded != "test data" {
		t.Errorf("discarded message: got %+v, want State discarded, Discarded \"test data\"", m.Summary)
	}
	if done := do("restore?dry_run=true", `{"filter":{"ids":[1,2]}}`); done.Messages != 1 {
		t.Errorf("dry run of restore: got %+v, want Messages 1", done)
	}
	if done := do("restore", `{"filter":{"ids":[1,2]}}`); done.Messages != 1 {
		t.Errorf("restore: got %+v, want Messages 1", done)
	}
	queues := get[api.Queues](t, ask(t, d, "GET", "/api/v1/queues", nil, who)).Queues
	want := []store.Counts{{Failed: 1, Discarded: 1}, {Failed: 1}}
	if len(queues) != 2 || queues[0].Counts != want[0] || queues[1].Counts != want[1] {
		t.Errorf("queues: got %+v, want the counts %+v", queues, want)
	}
	acts := get[api.Acts](t, ask(t, d, "GET", "/api/v1/acts", nil, who)).Acts
	if len(acts) != 2 || acts[0].Verb != "restore" || acts[1].Verb != "discard" || acts[0].Actor != "operate-er" || acts[1].Actor != "operate-er" {
		t.Errorf("audit log: got %+v, want len 2, [0].Verb restore, [1].Verb discard, [0].Actor operate-er, [1].Actor operate-er", acts)
	}
}

func TestExportAndImport(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	add(t, a, func(m *failed.Message) { m.Queue, m.Body = "mails", make([]byte, 2*web.SmallBody) })
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	w := ask(t, d, "GET", "/api/v1/messages/export", nil)
	if w.Code != http.StatusOK || strings.Count(w.Body.String(), "\n") != 2 {
		t.Fatalf("export: got status %d, want 200; body %s", w.Code, w.Body)
	}
	if one := ask(t, d, "GET", "/api/v1/messages/export?queue=mails", nil); strings.Count(one.Body.String(), "\n") != 1 {
		t.Errorf("export of one queue: got %s, want 1 line", one.Body)
	}
	other := newArchive(t, store.Config{})
	into := newCheckedConsole(t, newConsole(t, Config{Archive: other}))
	if done := get[api.Done](t, ask(t, into, "POST", "/api/v1/messages/import", w.Body.String(), header("Content-Type", "application/x-ndjson"))); done.Messages != 2 {
		t.Errorf("import: got %+v, want Messages 2", done)
	}
	before, _ := a.Get(t.Context(), 2)
	after, err := other.Get(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Content, after.Content, sameBytes); diff != "" {
		t.Error(diff)
	}
	refused(t, ask(t, into, "POST", "/api/v1/messages/import", "{\n", header("Content-Type", "application/x-ndjson")), http.StatusBadRequest, "line 1")
}

// disconnectingWriter is a response writer whose client disconnects when it receives the first bytes.
type disconnectingWriter struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (b *disconnectingWriter) Write(p []byte) (int, error) {
	b.leave()
	return b.ResponseRecorder.Write(p)
}

// If an export fails after the response has started, the console aborts the connection, so that the client detects that
// the export is incomplete.
func TestExportAbortsConnectionOnError(t *testing.T) {
	a := newArchive(t, store.Config{})
	for range 500 {
		add(t, a, func(m *failed.Message) { m.Body = make([]byte, 4096) })
	}
	c := newConsole(t, Config{Archive: a})
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/api/v1/messages/export", nil)
	r.RemoteAddr = "127.0.0.1:1"
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("export: got panic %v, want http.ErrAbortHandler", v)
		}
	}()
	c.ServeHTTP(&disconnectingWriter{httptest.NewRecorder(), cancel}, r)
}

func TestReplays(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	add(t, a, nil)
	w := &fakeReplayer{}
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: w}))
	plan := `{"filter":{"queue":"orders"},"to":{"exchange":"","routing_key":"orders.test"},"rate":2.5,"ramp":true,"canary":"1m30s","ignore_same":true}`
	preview := get[api.Preview](t, ask(t, d, "POST", "/api/v1/replays?dry_run=true", plan))
	if preview.Done != (api.Done{Messages: 2, DryRun: true, Through: 2}) || len(preview.Destinations) != 1 || preview.Destinations[0] !=
		(api.Destination{Target: api.Target{RoutingKey: "orders.test"}, FailedQueue: "orders.failed", Messages: 2, Route: replay.RouteGiven}) {
		t.Errorf("dry run: got %+v, want 2 messages to orders.test", preview)
	}
	if w.wakes.Load() != 0 {
		t.Error("the dry run woke the replayer")
	}
	created := ask(t, d, "POST", "/api/v1/replays", plan)
	if created.Code != http.StatusCreated || w.wakes.Load() != 1 {
		t.Errorf("got status %d, want 201, Wake called %d times, want 1", created.Code, w.wakes.Load())
	}
	r := get[api.Replay](t, created)
	if r.Total != 2 || r.Sent != 0 || r.State != "running" || r.Actor != "local" {
		t.Errorf("replay: got %+v, want Total 2, Sent 0, State running, Actor local", r)
	}
	got, _ := json.Marshal(r.Plan)
	if string(got) != plan {
		t.Errorf("plan: got %s, want %s", got, plan)
	}
	if list := get[api.Replays](t, ask(t, d, "GET", "/api/v1/replays", nil)); len(list.Replays) != 1 || list.Replays[0].ID != r.ID {
		t.Errorf("replays: got %+v, want only replay %d", list, r.ID)
	}
	if err := testhook.Sent(t.Context(), a, r.ID, 1); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/api/v1/replays/%d", r.ID)
	if r := get[api.Replay](t, ask(t, d, "GET", path, nil)); r.Sent != 1 {
		t.Errorf("sent messages: got %d, want 1", r.Sent)
	}
	r = get[api.Replay](t, ask(t, d, "POST", path+"/cancel", `{"reason":"wrong queue"}`))
	if r.State != "cancelled" || r.Why != "wrong queue" || r.Ended.IsZero() {
		t.Errorf("cancelled replay: got %+v, want State cancelled, Why \"wrong queue\"", r)
	}
	refused(t, ask(t, d, "POST", path+"/cancel", `{}`), http.StatusConflict, "nothing was changed")
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/2", nil)); m.State != "failed" {
		t.Errorf("unsent message: got state %s, want failed", m.State)
	}
}

// The API edits and replays the message in one action. If the revision in the request is outdated, it does neither.
func TestEditAndReplayIsAtomic(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	w := &fakeReplayer{}
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: w}))
	const path = "/api/v1/messages/1/replay"
	refused(t, ask(t, d, "POST", path, `{"text":"mended"}`), http.StatusBadRequest, `send "revision"`)
	refused(t, ask(t, d, "POST", path, `{"revision":1,"text":"mended"}`), http.StatusConflict, "nothing was changed")
	refused(t, ask(t, d, "POST", path, `{"revision":0,"text":"mended","to":{"exchange":"","routing_key":""}}`), http.StatusBadRequest, "Plan.To")
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil)); m.State != "failed" || m.Revision != 0 || w.wakes.Load() != 0 {
		t.Fatalf("refused requests changed the message: got state %s, want failed, got revision %d, want 0", m.State, m.Revision)
	}
	begun := ask(t, d, "POST", path, `{"revision":0,"text":"mended","to":{"exchange":"","routing_key":"by-hand"}}`)
	if r := get[api.Replay](t, begun); begun.Code != http.StatusCreated || r.Total != 1 || r.Plan.To == nil || r.Plan.To.RoutingKey != "by-hand" || w.wakes.Load() != 1 {
		t.Errorf("replay: got status %d, want 201, got %+v", begun.Code, r)
	}
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil)); m.State != "replaying" || m.Edited == nil || string(m.Edited.Body) != "mended" {
		t.Errorf("message: got state %s, want replaying, content %+v", m.State, m.Edited)
	}
}

func TestReplayRequiresReplayer(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	refused(t, ask(t, d, "POST", "/api/v1/replays", `{"all":true}`), http.StatusServiceUnavailable, "not connected to a broker")
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil)); m.State != "failed" {
		t.Errorf("message: got state %s, want failed", m.State)
	}
}

func TestGroupsAndQueues(t *testing.T) {
	a := newArchive(t, store.Config{})
	add(t, a, nil)
	add(t, a, func(m *failed.Message) { m.Error = "card 5 declined" })
	add(t, a, func(m *failed.Message) { m.Queue, m.Error = "mails", "no such mailbox" })
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	groups := get[api.Groups](t, ask(t, d, "GET", "/api/v1/groups?order=failed", nil)).Groups
	if len(groups) != 2 || groups[0].Counts.Failed != 2 || groups[0].Queue != "orders" {
		t.Fatalf("groups: got %+v, want len 2, [0].Counts.Failed 2, [0].Queue orders", groups)
	}
	g := get[store.Group](t, ask(t, d, "GET", fmt.Sprintf("/api/v1/groups/%d", groups[0].ID), nil))
	if g.Example != "card 5 declined" || len(g.Hours) != 24 || len(g.Days) != 30 {
		t.Errorf("group: got %+v, want Example \"card 5 declined\", len(Hours) 24, len(Days) 30", g)
	}
	for query, want := range map[string]int{"queue=mails": 1, "text=mailbox": 1, "state=discarded": 0, "size=1": 1} {
		if got := get[api.Groups](t, ask(t, d, "GET", "/api/v1/groups?"+query, nil)).Groups; len(got) != want {
			t.Errorf("%s: got %d groups, want %d", query, len(got), want)
		}
	}
	queues := get[api.Queues](t, ask(t, d, "GET", "/api/v1/queues", nil)).Queues
	if len(queues) != 2 || queues[1].Queue != "orders" || queues[1].Counts.Failed != 2 || !queues[1].Newest.Equal(noon) {
		t.Errorf("queues: got %+v, want len 2, [1].Queue orders, [1].Counts.Failed 2", queues)
	}
}
