package console

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
	"github.com/reprisemq/reprise/topology"
)

// foreignMessage draws a message as any program can publish it.
var foreignMessage = rapid.Custom(func(t *rapid.T) amqp.Publishing {
	s := func(name string) string {
		return hostile.Text.Filter(func(s string) bool { return len(s) < 256 }).Draw(t, name)
	}
	p := amqp.Publishing{
		Headers: amqp.Table(amqpTable(hostile.Headers().Draw(t, "headers"))), Body: []byte(s("body")), Timestamp: hostile.Time.Draw(t, "timestamp"),
		ContentType: s("content type"), ContentEncoding: s("encoding"), CorrelationId: s("correlation"), ReplyTo: s("reply to"),
		MessageId: s("id"), Type: s("type"), AppId: s("app"), Priority: rapid.Byte().Draw(t, "priority"),
	}
	delete(p.Headers, "CC") // routes the message
	return p
})

// amqpTable converts nested tables to the type of the AMQP client.
func amqpTable(t topology.Table) map[string]any {
	out := map[string]any{}
	for name, v := range t {
		out[name] = amqpValue(v)
	}
	return out
}

func amqpValue(v any) any {
	switch v := v.(type) {
	case topology.Table:
		return amqp.Table(amqpTable(v))
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = amqpValue(e)
		}
		return out
	}
	return v
}

// sameValues compares times by instant, and floats by bits.
var sameValues = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
}

// Messages with any content, next to an ordinary message, leave every list, page and export complete. They can be
// edited and imported without a change of their content.
func TestForeignMessagesAffectOnlyTheirCells(t *testing.T) {
	const n = 150
	a := newArchive(t, store.Config{Redact: []failed.Rule{{Header: "x-token"}}})
	client := archiveForeign(t, a, n)
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}, Broker: func() *reprise.Client { return client }}))

	if w := ask(t, d, "GET", "/api/v1/messages?size=1000", nil); w.Code != http.StatusOK {
		t.Fatalf("list: got status %d: %.300s", w.Code, w.Body)
	}
	page := get[api.Messages](t, ask(t, d, "GET", "/api/v1/messages?size=1000", nil))
	if len(page.Messages) != n {
		t.Fatalf("list: got %d messages, want %d", len(page.Messages), n)
	}
	for _, path := range []string{
		"/", "/messages", "/messages?state=failed", "/groups", "/retrying", "/workers", "/topology", "/audit", "/replays", "/history", "/discard?all=true", "/replays/new?all=true", "/erase?state=failed&min_attempts=1",
		"/api/v1/groups", "/api/v1/queues", "/api/v1/waiting/summary", "/api/v1/acts", "/api/v1/messages/count",
	} {
		checkAnswer(t, d, path)
	}
	for _, g := range get[api.Groups](t, ask(t, d, "GET", "/api/v1/groups?size=1000", nil)).Groups {
		checkAnswer(t, d, fmt.Sprintf("/groups/%d", g.ID))
		checkAnswer(t, d, fmt.Sprintf("/api/v1/groups/%d", g.ID))
	}
	for _, m := range page.Messages {
		checkForeign(t, d, a, m.ID)
	}
	rows, err := csv.NewReader(ask(t, d, "GET", "/api/v1/messages/export?format=csv", nil).Body).ReadAll()
	if err != nil || len(rows) != n+1 {
		t.Errorf("CSV: got %d rows, want %d; error %v", len(rows), n+1, err)
	}
	checkImport(t, d, a, n)
}

// archiveForeign publishes n drawn messages to a failed queue, and archives them.
func archiveForeign(t *testing.T, a *store.Archive, n int) *reprise.Client {
	t.Helper()
	b := testkit.Embedded(t)
	client, err := reprise.Dial(t.Context(), b.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	if err := client.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "orders"}, {Name: "orders.failed"}}}); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := ch.PublishWithContext(t.Context(), "", "orders.failed", true, false, foreignMessage.Example(i)); err != nil {
			t.Fatal(err)
		}
	}
	ingest, err := ingest.New(client, a, ingest.Config{Queues: []string{"orders.failed"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ingest.Run(ctx) }()
	testkit.Eventually(t, time.Minute, func() error {
		found, err := a.Count(t.Context(), failed.Filter{})
		if err == nil && found.N != int64(n) {
			err = fmt.Errorf("archive has %d messages, want %d", found.N, n)
		}
		return err
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client
}

func checkAnswer(t *testing.T, d *checkedConsole, path string) {
	t.Helper()
	var h http.Handler = d
	if !strings.HasPrefix(path, "/api/") {
		h = d.Console
	}
	w := ask(t, h, "GET", path, nil)
	if w.Code != http.StatusOK || !utf8.Valid(w.Body.Bytes()) || strings.HasPrefix(path, "/api/") && !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s: got status %d, want 200 and valid UTF-8: %.300q", path, w.Code, w.Body)
	}
}

// checkForeign shows and edits a message.
func checkForeign(t *testing.T, d *checkedConsole, a *store.Archive, id int64) {
	t.Helper()
	api1 := fmt.Sprintf("/api/v1/messages/%d", id)
	for _, path := range []string{fmt.Sprintf("/messages/%d", id), fmt.Sprintf("/messages/%d/edit", id), api1 + "/revisions"} {
		checkAnswer(t, d, path)
	}
	w := ask(t, d, "GET", api1, nil)
	if w.Code != http.StatusOK {
		t.Errorf("message %d: got status %d: %.300s", id, w.Code, w.Body)
		return
	}
	shown := get[api.Message](t, w).Original
	edit := api.Edit{Revision: new(0), Body: &shown.Body, Headers: &shown.Headers, Properties: &shown.Properties}
	if m := get[api.Message](t, ask(t, d, "PUT", api1+"/edit", edit)); m.Revision != 0 {
		t.Errorf("message %d: an edit without changes has revision %d", id, m.Revision)
	}
	changed := []byte("changed")
	edit.Body = &changed
	if m := get[api.Message](t, ask(t, d, "PUT", api1+"/edit", edit)); m.Revision != 1 {
		t.Errorf("message %d: got revision %d, want 1", id, m.Revision)
	}
	checkAnswer(t, d, api1+"/diff")
	checkAnswer(t, d, fmt.Sprintf("/messages/%d/revisions/1", id))
	m, err := a.Get(t.Context(), failed.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	m.Edited.Body = m.Body
	if diff := cmp.Diff(m.Content, *m.Edited, sameValues); diff != "" {
		t.Errorf("message %d: edit of the body changed: %s", id, diff)
	}
}

// checkImport exports all messages, and imports them into another archive.
func checkImport(t *testing.T, d *checkedConsole, a *store.Archive, n int) {
	t.Helper()
	w := ask(t, d, "GET", "/api/v1/messages/export?format=jsonl", nil)
	lines := w.Body.Bytes()
	if w.Code != http.StatusOK || bytes.Count(lines, []byte("\n")) != n {
		t.Fatalf("export: got status %d and %d lines, want %d", w.Code, bytes.Count(lines, []byte("\n")), n)
	}
	other := newArchive(t, store.Config{})
	into := newConsole(t, Config{Archive: other, Replayer: &fakeReplayer{}})
	if w := ask(t, into, "POST", "/api/v1/messages/import", lines, header("Content-Type", "application/x-ndjson")); w.Code != http.StatusOK {
		t.Fatalf("import: got status %d: %.300s", w.Code, w.Body)
	}
	if diff := cmp.Diff(contents(t, a, n), contents(t, other, n)); diff != "" {
		t.Errorf("import changed messages: %.2000s", diff)
	}
}

// contents counts the messages of an archive by content.
func contents(t *testing.T, a *store.Archive, n int) map[string]int {
	t.Helper()
	found := map[string]int{}
	for id := range n {
		m, err := a.Get(t.Context(), failed.ID(id+1))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal([]any{api.ContentOf(m.Content), api.ContentOf(m.Current())})
		if err != nil {
			t.Fatal(err)
		}
		found[string(b)]++
	}
	return found
}
