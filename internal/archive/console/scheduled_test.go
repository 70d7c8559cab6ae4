package console

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/outbox"
)

// newBox returns an outbox with two messages to orders, one to mails with a secret, and the periodic message nightly.
func newBox(t testing.TB) *outbox.Box {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=busy_timeout(30000)&_pragma=synchronous(OFF)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	box, err := outbox.Open(t.Context(), db, outbox.Config{Dialect: outbox.SQLite})
	if err == nil {
		err = box.Every(outbox.Entry{Name: "nightly", Spec: "30 2 * * *", Message: reprise.Message{RoutingKey: "reports"}})
	}
	for i, queue := range []string{"orders", "orders", "mails"} {
		m := reprise.Message{RoutingKey: queue, MessageID: fmt.Sprintf("m-%d", i+1), Body: []byte(`{"n":1}`), Headers: map[string]any{"x-token": "hush"}}
		if err == nil {
			err = box.Schedule(t.Context(), &outbox.Message{Message: m, In: time.Duration(i+1) * time.Hour, Key: queue})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// nobody is a publisher without messages.
type nobody struct{}

func (nobody) PublishBatch(context.Context, []*reprise.Message) error { return nil }

// withBox returns the configuration of a console with an outbox whose periodic messages are in the database.
func withBox(t testing.TB, box *outbox.Box) Config {
	t.Helper()
	relay, err := outbox.NewRelay(box, nobody{}, outbox.RelayConfig{Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	for {
		entries, err := box.Entries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return Config{Outbox: func() *outbox.Box { return box }, Archive: newArchive(t, store.Config{Redact: []failed.Rule{{Header: "x-token"}}})}
}

func TestScheduledAPI(t *testing.T) {
	cfg := withBox(t, newBox(t))
	list, secrets := tokens()
	cfg.Tokens = list
	d := newCheckedConsole(t, newConsole(t, cfg))
	as := bearer(secrets[Operate])
	query := func(query string) (ids []string, next string) {
		t.Helper()
		page := get[api.ScheduledPage](t, ask(t, d, "GET", "/api/v1/scheduled"+query, nil, as))
		for _, m := range page.Messages {
			ids = append(ids, string(m.MessageID))
		}
		return ids, page.Next
	}
	want := func(q string, want ...string) {
		t.Helper()
		if got, _ := query(q); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", q, got, want)
		}
	}
	want("", "m-1", "m-2", "m-3")
	_, next := query("?size=2")
	want("?size=2&after="+next, "m-3")
	want("?routing_key=orders", "m-1", "m-2")
	want("?order_key=mails", "m-3")
	want("?id=1&id=3", "m-1", "m-3")
	want("?before=90m", "m-1")
	want("?from=90m&before=150m", "m-2")
	want("?failed=true")
	for _, q := range []string{"?id=x", "?before=soon", "?after=x", "?size=0", "?failed=1", "?queue=x"} {
		refused(t, ask(t, d, "GET", "/api/v1/scheduled"+q, nil, as), http.StatusBadRequest, "")
	}

	one := get[api.ScheduledMessage](t, ask(t, d, "GET", "/api/v1/scheduled/1", nil, as))
	if one.Text == nil || *one.Text != `{"n":1}` || strings.Contains(fmt.Sprint(one.Headers), "hush") {
		t.Errorf("message: got %+v, want its body, and no secret", one)
	}
	if one = get[api.ScheduledMessage](t, ask(t, d, "GET", "/api/v1/scheduled/1", nil, bearer(secrets[Admin]))); one.Headers["x-token"] != "hush" {
		t.Errorf("headers for an administrator: got %v", one.Headers)
	}
	refused(t, ask(t, d, "GET", "/api/v1/scheduled/99", nil, as), http.StatusNotFound, "not in the outbox")
	if s := get[api.OutboxStatus](t, ask(t, d, "GET", "/api/v1/scheduled/status", nil, as)); s.Relay || s.Lag != 0 || s.Next.IsZero() {
		t.Errorf("status: got %+v", s)
	}

	act := func(path, body string) api.ScheduledDone {
		t.Helper()
		return get[api.ScheduledDone](t, ask(t, d, "POST", "/api/v1/scheduled/"+path, body, as))
	}
	dry := act("cancel?dry_run=true", `{"filter":{"routing_key":"orders"}}`)
	if dry.Selected != 2 || dry.Through != 2 || !dry.DryRun {
		t.Errorf("dry run: got %+v", dry)
	}
	p := api.Publish{Target: api.Target{RoutingKey: "orders"}, In: api.Duration(time.Minute), Properties: api.Properties{MessageID: new(api.Text("new"))}}
	if got := get[api.Published](t, ask(t, d, "POST", "/api/v1/publish", p, as)); got.MessageID != "new" || time.Until(got.Due).Round(time.Minute) != time.Minute {
		t.Errorf("publish in a minute: got %+v", got)
	}
	if done := act("cancel", `{"filter":{"routing_key":"orders"},"at_most":2,"through":2,"reason":"test"}`); done.Done != 2 || done.Selected != 2 {
		t.Errorf("cancel of the announced messages: got %+v, want 2", done)
	}
	want("", "new", "m-3")
	if done := act("cancel", `{"all":true,"filter":{},"at_most":1}`); done.Done != 1 {
		t.Errorf("cancel of at most one: got %+v", done)
	}
	if done := act("move", `{"filter":{"ids":[]},"in":"10h"}`); done.Selected != 0 {
		t.Errorf("move of an empty list: got %+v, want nothing", done)
	}
	if done := act("move", `{"filter":{"ids":[3]},"in":"10h"}`); done.Done != 1 {
		t.Errorf("move: got %+v", done)
	}
	want("?from=9h", "m-3")
	if done := act("move", `{"filter":{"ids":[3]}}`); done.Done != 1 {
		t.Errorf("send now: got %+v", done)
	}
	want("?before=1m", "m-3")
	for _, body := range []string{`{"filter":{}}`, `{"all":true,"filter":{"ids":[1]}}`, `{"all":true,"filter":{},"at_most":10001}`, `{"all":true,"filter":{},"at":"2030-01-01T00:00:00Z","in":"1s"}`, `{"all":true,"filter":{},"in":"-1s"}`} {
		refused(t, ask(t, d, "POST", "/api/v1/scheduled/move", body, as), http.StatusBadRequest, "")
	}
	refused(t, ask(t, d, "POST", "/api/v1/scheduled/cancel", `{"all":true,"filter":{},"in":"1s"}`, as), http.StatusBadRequest, "must not be set")

	var verbs []string
	for _, a := range get[api.Acts](t, ask(t, d, "GET", "/api/v1/acts", nil, as)).Acts {
		verbs = append(verbs, a.Verb)
	}
	slices.Reverse(verbs)
	if got, want := strings.Join(verbs, ", "), "publish, cancel scheduled, cancel scheduled ended, cancel scheduled, cancel scheduled ended, "+
		"move scheduled, move scheduled ended, send scheduled now, send scheduled now ended"; got != want {
		t.Errorf("audit log: got %s, want %s", got, want)
	}
}

func TestPublishLaterAPI(t *testing.T) {
	box := newBox(t)
	d := newCheckedConsole(t, newConsole(t, withBox(t, box)))
	publish := func(fields string) *http.Response {
		return ask(t, d, "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","text":"x",`+fields+`}`).Result()
	}
	for fields, want := range map[string]int{
		`"in":"1h"`:                                      200,
		`"in":"2d"`:                                      200,
		`"at":"2030-01-01T00:00:00Z"`:                    200,
		`"at":"2030-01-01T00:00:00+24:00"`:               200, // package time reads this zone, but does not write it
		`"order_key":"a"`:                                200,
		`"unique":"u","unique_for":"1h"`:                 200,
		`"unique":"u"`:                                   422,
		`"unique_for":"1h"`:                              422,
		`"in":"-1s"`:                                     422,
		`"in":"soon"`:                                    400,
		`"in":"1h","at":"2030-01-01T00:00:00Z"`:          422,
		`"in":"1h","properties":{"user_id":"x"}`:         400,
		`"order_key":"` + strings.Repeat("x", 300):       400, // not JSON
		`"order_key":"` + strings.Repeat("x", 300) + `"`: 422,
	} {
		if r := publish(fields); r.StatusCode != want {
			t.Errorf("%.60s: got status %d, want %d", fields, r.StatusCode, want)
		}
	}
	get[api.Published](t, ask(t, d, "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","in":"1h","text":"`+strings.Repeat("x", 16<<20)+`"}`))
	first := get[api.Published](t, ask(t, d, "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","unique":"once","unique_for":"1h","in":"1h"}`))
	again := get[api.Published](t, ask(t, d, "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","unique":"once","unique_for":"1h","in":"2h"}`))
	if first.Duplicate || !again.Duplicate || again.MessageID != first.MessageID || !again.Due.Equal(first.Due) {
		t.Errorf("second message with a unique key: got %+v, want the duplicate of %+v", again, first)
	}

	refused(t, ask(t, newConsole(t, Config{}), "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","in":"1h"}`), http.StatusConflict, "set outbox:")
	away := newConsole(t, Config{Outbox: func() *outbox.Box { return nil }})
	refused(t, ask(t, away, "POST", "/api/v1/publish", `{"exchange":"","routing_key":"orders","in":"1h"}`), http.StatusServiceUnavailable, "not open yet")
	refused(t, ask(t, away, "GET", "/api/v1/scheduled", nil), http.StatusServiceUnavailable, "not open yet")
}

func TestCronAPI(t *testing.T) {
	box := newBox(t)
	d := newCheckedConsole(t, newConsole(t, withBox(t, box)))
	list := get[api.Cron](t, ask(t, d, "GET", "/api/v1/cron?count=3", nil)).Entries
	if len(list) != 1 || list[0].App != "default" || list[0].Name != "nightly" || len(list[0].Next) != 3 || list[0].Next[0].Hour() != 2 || list[0].Idle {
		t.Errorf("periodic messages: got %+v", list)
	}
	for _, n := range []string{"0", "101", "x"} {
		refused(t, ask(t, d, "GET", "/api/v1/cron?count="+n, nil), http.StatusBadRequest, "from 1 to 100")
	}
	if got := get[api.CronName](t, ask(t, d, "POST", "/api/v1/cron/run", `{"name":"nightly"}`)); got.App != "default" {
		t.Errorf("run: got %+v", got)
	}
	for _, body := range []string{`{"name":"none"}`, `{"app":"none","name":"nightly"}`} {
		refused(t, ask(t, d, "POST", "/api/v1/cron/run", body), http.StatusNotFound, "not found")
	}
	if got := get[api.CronName](t, ask(t, d, "POST", "/api/v1/cron/remove", `{"name":"nightly"}`)); got.App != "default" {
		t.Errorf("remove: got %+v", got)
	}
	refused(t, ask(t, d, "POST", "/api/v1/cron/remove", `{"app":"default","name":"nightly"}`), http.StatusNotFound, "not found")
	if list := get[api.Cron](t, ask(t, d, "GET", "/api/v1/cron", nil)).Entries; len(list) != 0 {
		t.Errorf("periodic messages after the removal: got %+v", list)
	}
	if acts := get[api.Acts](t, ask(t, d, "GET", "/api/v1/acts", nil)).Acts; len(acts) != 2 || acts[1].Verb != "run periodic" || acts[0].Verb != "remove periodic" {
		t.Errorf("audit log: got %+v", acts)
	}
}

func TestScheduledPage(t *testing.T) {
	box := newBox(t)
	c := newConsole(t, withBox(t, box))
	page := func(path string) string {
		t.Helper()
		w := ask(t, c, "GET", path, nil)
		if w.Code != http.StatusOK {
			t.Fatalf("GET %s: got status %d, want 200; body %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	contains := func(text string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("page does not contain %q: %s", part, text)
			}
		}
	}
	contains(page("/scheduled"), "3 messages", "No process publishes these messages", "nightly", "30 2 * * *", "m-3", "/scheduled/act?all=true&amp;do=cancel", "/scheduled/act?do=move&amp;id=1", `href="/scheduled" aria-current="page"`)
	if text := page("/scheduled?routing_key=mails&failed=&before=&order_key="); strings.Contains(text, "m-1") || !strings.Contains(text, "m-3") {
		t.Errorf("page of mails: %s", text)
	}
	contains(page("/scheduled?routing_key=none"), "No matching messages")
	contains(page("/scheduled/1"), "Message 1 to orders", "order")
	contains(page("/scheduled/act?do=cancel&routing_key=orders"), "Cancel: 2 messages", `name="at_most" value="2"`, `name="through" value="2"`)
	contains(page("/scheduled?act=cancel&done=2&attempted=1&late=3"), "3 messages canceled. 1 after a failed attempt", "3 unchanged")
	for path, status := range map[string]int{"/scheduled?before=soon": 400, "/scheduled/act?do=x&all=true": 400, "/scheduled/act?do=cancel": 400, "/scheduled/99": 404} {
		if w := ask(t, c, "GET", path, nil); w.Code != status {
			t.Errorf("GET %s: got status %d, want %d", path, w.Code, status)
		}
	}
	submit := func(path, form string, status int) {
		t.Helper()
		if w := ask(t, c, "POST", path, form, header("Content-Type", "application/x-www-form-urlencoded")); w.Code != status {
			t.Errorf("POST %s %s: got status %d, want %d; body %.300s", path, form, w.Code, status, w.Body)
		}
	}
	list := func() string {
		t.Helper()
		rows, err := box.List(t.Context(), outbox.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&text, "%s in %s, ", r.MessageID, time.Until(r.Due).Round(time.Hour))
		}
		return text.String()
	}
	submit("/scheduled/act", "do=move&id=1&at_most=1&through=3&at=soon", 422)
	submit("/scheduled/act", "do=move&id=1&at_most=1&at=9h", 400)
	submit("/scheduled/act", "do=move&id=1&at_most=1&through=3&at=9h&submission=s1", 303)
	submit("/scheduled/act", "do=move&id=1&at_most=1&through=3&at=10h&submission=s1", 409)
	submit("/scheduled/act", "do=move&id=1&at_most=1&through=3&at=-2d", 422)
	submit("/scheduled/act", "do=move&id=1&at_most=1&through=3&at=0s", 422)
	submit("/scheduled/act", "do=move&id=3&at_most=1&through=3&at=2d", 303)
	submit("/scheduled/act", "do=send&id=2&at_most=1&through=3", 303)
	submit("/scheduled/picked", "do=cancel&id=1&id=3", 200)
	if got, want := list(), "m-2 in 0s, m-1 in 9h0m0s, m-3 in 48h0m0s, "; got != want {
		t.Errorf("messages: got %s, want %s", got, want)
	}
	submit("/scheduled/act", "do=cancel&all=true&at_most=2&through=2", 303)
	if got, want := list(), "m-3 in 48h0m0s, "; got != want {
		t.Errorf("messages: got %s, want %s", got, want)
	}
	submit("/scheduled/run", "app=default&name=nightly&submission=s2", 303)
	submit("/scheduled/run", "app=default&name=none&submission=s3", 404)

	without := newConsole(t, Config{})
	if w := ask(t, without, "GET", "/", nil); strings.Contains(w.Body.String(), `href="/scheduled"`) {
		t.Error("console without an outbox links to the page")
	}
	if w := ask(t, without, "GET", "/scheduled", nil); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "This console has no outbox") {
		t.Errorf("page without an outbox: got status %d, want 409; body %s", w.Code, w.Body)
	}
}

// The form for a new message inserts it into the outbox if it has a time.
func TestPublishLaterPage(t *testing.T) {
	box := newBox(t)
	c := newConsole(t, withBox(t, box))
	if body := ask(t, c, "GET", "/publish?queue=orders", nil).Body.String(); !strings.Contains(body, `name="later" value=""`) {
		t.Errorf("form: got %s, want the field later", body)
	}
	if body := ask(t, newConsole(t, Config{}), "GET", "/publish?queue=orders", nil).Body.String(); strings.Contains(body, "later") {
		t.Error("form of a console without an outbox: the field later exists")
	}
	form := url.Values{"queue": {"orders"}, "body": {"new"}, "message_id": {"new"}, "do": {"publish"}}
	for later, want := range map[string]string{"soon": "Enter a time from now", "-1h": "Enter a time from now", "0s": "Enter a time from now"} {
		form.Set("later", later)
		if status, _, body := post(t, c, "/publish", form); status != http.StatusUnprocessableEntity || !strings.Contains(body, want) || !strings.Contains(body, `value="`+later+`"`) {
			t.Errorf("later %s: got status %d, want 422 with the form: %s", later, status, body)
		}
	}
	form.Set("later", "1d")
	status, location, _ := post(t, c, "/publish", form)
	if body := ask(t, c, "GET", location, nil).Body.String(); status != http.StatusSeeOther || !strings.Contains(body, "Message scheduled. It is due at 20") {
		t.Errorf("status %d, location %s: %s", status, location, body)
	}
	rows, err := box.List(t.Context(), outbox.Filter{MessageID: "new"})
	if err != nil || len(rows) != 1 || rows[0].RoutingKey != "orders" || time.Until(rows[0].Due).Round(time.Hour) != 24*time.Hour {
		t.Errorf("outbox: got %+v, %v; want the message, due in a day", rows, err)
	}
}
