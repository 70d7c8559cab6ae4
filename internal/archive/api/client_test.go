package api_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeReplayer does not send messages.
type fakeReplayer struct{}

func (fakeReplayer) Wake() {}

// serve starts a console with two failed messages. It returns a client, the archive and the URL of the console.
func serve(t testing.TB, cfg console.Config) (*api.Client, *store.Archive, string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	archive, err := store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := archive.Add(t.Context(), []failed.Message{{
			Queue: "orders", FailedQueue: "orders.failed", Attempts: 10, Error: fmt.Sprintf("card %d declined", i),
			FirstFailed: noon, LastFailed: noon.Add(time.Duration(i) * time.Second),
			Content: failed.Content{Body: []byte(`{"order":17}`), Headers: topology.Table{"big": int64(1<<62 + 1)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg.Archive, cfg.Replayer = archive, fakeReplayer{}
	c, err := console.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := api.NewClient(api.ClientConfig{URL: server.URL, Actor: "cli:ann@desk", HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return client, archive, server.URL
}

func TestClient(t *testing.T) {
	c, _, _ := serve(t, console.Config{})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	me, err := c.Me(ctx)
	must(err)
	if me != (api.Me{Actor: "cli:ann@desk", Role: "admin"}) {
		t.Errorf("me: got %+v, want %+v", me, api.Me{Actor: "cli:ann@desk", Role: "admin"})
	}
	page, err := c.Messages(ctx, failed.Filter{Queue: "orders"}, api.Page{Size: 1})
	must(err)
	if len(page.Messages) != 1 || page.Messages[0].ID != 2 || page.Next == "" {
		t.Fatalf("first page: got %+v, want message 2 and a next page", page)
	}
	page, err = c.Messages(ctx, failed.Filter{Queue: "orders"}, api.Page{Size: 1, After: page.Next})
	must(err)
	if len(page.Messages) != 1 || page.Messages[0].ID != 1 {
		t.Errorf("second page: got %+v, want len(Messages) 1, Messages[0].ID 1", page)
	}
	total, err := c.Count(ctx, failed.Filter{IDs: []failed.ID{1, 2}})
	must(err)
	if total.N != 2 {
		t.Errorf("count: got %+v, want N 2", total)
	}

	m, err := c.Message(ctx, 1)
	must(err)
	if n := m.Original.Headers["big"]; n != int64(1<<62+1) {
		t.Errorf("64-bit header: got %v, want %v", n, int64(1<<62+1))
	}
	empty := ""
	m, err = c.Edit(ctx, 1, api.Edit{Revision: &m.Revision, Text: &empty})
	must(err)
	if m.Edited == nil || len(m.Edited.Body) != 0 {
		t.Errorf("edit to an empty body: got %+v, want an empty Body", m.Edited)
	}
	diff, err := c.Diff(ctx, 1)
	must(err)
	if !strings.Contains(diff.Body, `-{"order":17}`) || diff.Headers != "" {
		t.Errorf("diff: got %+v, want Headers \"\"", diff)
	}
	revisions, err := c.Revisions(ctx, 1)
	must(err)
	if len(revisions.Revisions) != 1 || revisions.Revisions[0].Actor != "cli:ann@desk" {
		t.Errorf("revisions: got %+v, want len(Revisions) 1, Revisions[0].Actor cli:ann@desk", revisions)
	}
	revision, err := c.Revision(ctx, 1, 1)
	must(err)
	if revision.RevisionSummary != revisions.Revisions[0] || revision.Text == nil || *revision.Text != "" {
		t.Errorf("revision: got %+v, want %+v with an empty text", revision, revisions.Revisions[0])
	}
	m, err = c.Revert(ctx, 1, m.Revision)
	must(err)
	if m.IsEdited {
		t.Error("message is edited after the revert")
	}

	all := failed.Selection{All: true}
	discard := api.Discard{Selection: failed.Selection{Filter: failed.Filter{IDs: []failed.ID{1}}}, Reason: "a test"}
	for _, step := range []struct {
		what string
		do   func() (api.Done, error)
		want api.Done
	}{
		{"dry run of discard", func() (api.Done, error) { return c.Discard(ctx, discard, true) }, api.Done{Messages: 1, DryRun: true, Through: 2}},
		{"discard", func() (api.Done, error) { return c.Discard(ctx, discard, false) }, api.Done{Messages: 1}},
		{"dry run of restore", func() (api.Done, error) { return c.Restore(ctx, all, true) }, api.Done{Messages: 1, DryRun: true, Through: 2}},
		{"restore", func() (api.Done, error) { return c.Restore(ctx, all, false) }, api.Done{Messages: 1}},
		{"dry run of replay", func() (api.Done, error) { p, err := c.WouldReplay(ctx, api.Plan{Selection: all}); return p.Done, err }, api.Done{Messages: 2, DryRun: true, Through: 2}},
		{"dry run of erase", func() (api.Done, error) {
			return c.Erase(ctx, api.Erase{Selection: all}, true)
		}, api.Done{Messages: 2, DryRun: true, Through: 2, States: store.Counts{Failed: 2}}},
		{"dry run of purge", func() (api.Done, error) { return c.Purge(ctx, true) }, api.Done{DryRun: true}},
		{"purge", func() (api.Done, error) { return c.Purge(ctx, false) }, api.Done{}},
	} {
		if got, err := step.do(); err != nil || got != step.want {
			t.Errorf("%s: got %+v, want %+v; error %v", step.what, got, step.want, err)
		}
	}

	edit := &api.BulkEdit{
		Patch: json.RawMessage(`[{"op":"add","path":"/<b>","value":{"x":1.0}}]`), Replace: []api.Replacement{{Old: "(17)", New: "${1}8", Regexp: true}},
		SetHeaders: api.Headers{"n": int32(5)}, RemoveHeaders: []api.Text{"tenant"}, SendUnchanged: true, SendImpossible: true,
	}
	would, err := c.WouldReplay(ctx, api.Plan{Selection: all, Edit: edit})
	must(err)
	if v := would.Edit; v == nil || v.Changed != 2 || len(v.Samples) != 2 || !strings.Contains(v.Samples[0].Diff.Body, `+{"order":178,"<b>":{"x":1.0}}`) ||
		!strings.Contains(v.Samples[0].Diff.Headers, `+"n":{"int32":5}`) {
		t.Errorf("preview of the edit: got %+v, want 2 changed messages with the differences of the edit", would.Edit)
	}
	r, err := c.BeginReplay(ctx, api.Plan{Selection: all, Canary: api.Duration(time.Minute), Edit: edit})
	must(err)
	if diff := cmp.Diff(edit, r.Plan.Edit); diff != "" {
		t.Error(diff)
	}
	if r.Total != 2 || r.Plan.Canary != api.Duration(time.Minute) || !r.Plan.All {
		t.Errorf("replay: got %+v, want all 2 messages, with a canary of 1m", r)
	}
	r, err = c.Cancel(ctx, r.ID, "a test")
	must(err)
	if r.State != "cancelled" {
		t.Errorf("cancelled replay: got %+v, want State cancelled", r)
	}
	r, err = c.Replay(ctx, r.ID)
	must(err)
	replays, err := c.Replays(ctx, api.Page{})
	must(err)
	if len(replays.Replays) != 1 || replays.Replays[0].State != r.State {
		t.Errorf("replays: got %+v, want 1 in state %s", replays, r.State)
	}

	groups, err := c.Groups(ctx, api.GroupFilter{Queue: "orders", State: "failed", Text: "declined", Order: "failed"}, api.Page{})
	must(err)
	if len(groups.Groups) != 1 || groups.Groups[0].Counts.Failed != 2 {
		t.Fatalf("groups: got %+v, want len(Groups) 1, Groups[0].Counts.Failed 2", groups)
	}
	if _, err := c.Group(ctx, int64(groups.Groups[0].ID)); err != nil {
		t.Error(err)
	}
	queues, err := c.Queues(ctx)
	must(err)
	ledger, err := c.Ledger(ctx)
	must(err)
	if len(queues.Queues) != 1 || queues.Queues[0].Counts.Failed != 2 || ledger.Kept {
		t.Errorf("got queues %+v, want len(Queues) 1, Queues[0].Counts.Failed 2; ledger %+v", queues, ledger)
	}
	acts, err := c.Acts(ctx, store.ActFilter{}, api.Page{Size: 100})
	must(err)
	if len(acts.Acts) != 6 || acts.Acts[5].Verb != "edit" {
		t.Errorf("audit log: got %+v, want len(Acts) 6, Acts[5].Verb edit", acts)
	}
}

func TestClientExportAndImport(t *testing.T) {
	from, _, _ := serve(t, console.Config{})
	to, _, _ := serve(t, console.Config{})
	var lines bytes.Buffer
	n, err := from.Export(t.Context(), failed.Filter{IDs: []failed.ID{1}}, &lines)
	if err != nil || n != int64(lines.Len()) || strings.Count(lines.String(), "\n") != 1 {
		t.Fatalf("export: got %d bytes, want %d; error %v: %s", n, int64(lines.Len()), err, &lines)
	}
	for _, want := range []int64{1, 0} { // the second import finds the message
		if done, err := to.Import(t.Context(), strings.NewReader(lines.String())); err != nil || done.Messages != want {
			t.Errorf("import: got %+v, %v, want %d", done, err, want)
		}
	}
	_, err = to.Import(t.Context(), strings.NewReader("nonsense\n"))
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Status != http.StatusBadRequest || !strings.Contains(e.Text, "line 1") {
		t.Errorf("import of an invalid line: got error %v", err)
	}
}

// Errors contain advice.
func TestClientErrors(t *testing.T) {
	secret, hash := console.NewToken()
	_, _, address := serve(t, console.Config{Tokens: []console.Token{{Name: "ann", Role: console.View, Hash: hash}}})
	client := func(token string) *api.Client {
		c, err := api.NewClient(api.ClientConfig{URL: address + "/", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	if me, err := client(secret).Me(t.Context()); err != nil || me.Actor != "ann" {
		t.Errorf("me: got %+v, want Actor ann; error %v", me, err)
	}
	_, err := client("").Me(t.Context())
	checkError(t, err, http.StatusUnauthorized, "Bearer")
	_, err = client(secret).Discard(t.Context(), api.Discard{}, false)
	checkError(t, err, http.StatusForbidden, "ask for a token with the role operate")
	_, err = client(secret).Message(t.Context(), 99)
	checkError(t, err, http.StatusNotFound, "not found")

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	c, err := api.NewClient(api.ClientConfig{URL: other.URL, HTTP: other.Client()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Queues(t.Context())
	checkError(t, err, http.StatusNotFound, "is there a console at http://127.0.0.1")

	for _, address := range []string{"", "localhost:8085", "ftp://host", "http://"} {
		if _, err := api.NewClient(api.ClientConfig{URL: address}); err == nil || !strings.Contains(err.Error(), "must be a URL such as http://host:port") {
			t.Errorf("NewClient with URL %q: got error %v", address, err)
		}
	}
}

func checkError(t *testing.T, err error, status int, text string) {
	t.Helper()
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Status != status || !strings.Contains(e.Error(), text) {
		t.Errorf("got error %v, want status %d with %q", err, status, text)
	}
}

func TestClientReportsTruncatedExport(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}\n"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	c, err := api.NewClient(api.ClientConfig{URL: s.URL, HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	if _, err := c.Export(t.Context(), failed.Filter{}, &lines); err == nil || !strings.Contains(err.Error(), "export is incomplete") {
		t.Errorf("got error %v after %q, want an incomplete export", err, &lines)
	}
}
