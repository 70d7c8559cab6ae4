package upgradetest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

const (
	storeFixtures = "testdata/stores"
	schemaName    = "fixture_schema" // in dumps of PostgreSQL
)

// database contains an archive, a ledger and a deduplication store.
type database struct {
	*sql.DB
	dialect failed.Dialect
	file    string // of SQLite
	schema  string // of PostgreSQL
}

func openSQLite(t testing.TB, file string) database {
	t.Helper()
	db := value(sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)"))(t)
	t.Cleanup(func() { db.Close() })
	return database{DB: db, dialect: failed.SQLite, file: file}
}

func openPostgres(t testing.TB) database {
	t.Helper()
	d := database{DB: value(sql.Open("pgx", pgtest.Schema(t)))(t), dialect: failed.PostgreSQL}
	t.Cleanup(func() { d.DB.Close() })
	must(t, d.QueryRow("SELECT current_schema()").Scan(&d.schema))
	return d
}

// fromFixture returns a copy of a database that another version wrote.
func fromFixture(t testing.TB, name string) database {
	t.Helper()
	if filepath.Base(name) == "sqlite.db.gz" {
		file := filepath.Join(t.TempDir(), "test.db")
		must(t, os.WriteFile(file, decompress(t, name), 0o600))
		return openSQLite(t, file)
	}
	d := openPostgres(t)
	_, err := d.Exec(strings.ReplaceAll(string(decompress(t, name)), schemaName, quoted(d.schema)))
	must(t, err)
	return d
}

// session matches the statements in a dump that another version of PostgreSQL may reject, or that would change settings of
// the connection.
var session = regexp.MustCompile(`(?m)^(SET |SELECT pg_catalog\.set_config|CREATE SCHEMA |\\|--).*\n`)

// dump returns the content of a database in the form that fromFixture reads.
func (d database) dump(t testing.TB) (name string, content []byte) {
	t.Helper()
	if d.dialect == failed.SQLite {
		_, err := d.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
		must(t, err)
		return "sqlite.db.gz", compress(t, value(os.ReadFile(d.file))(t))
	}
	out := value(exec.Command("pg_dump", "--schema", quoted(d.schema), "--no-owner", "--inserts", pgtest.Server(t)).Output())(t)
	text := session.ReplaceAllString(strings.ReplaceAll(string(out), quoted(d.schema), schemaName), "")
	return "postgres.sql.gz", compress(t, []byte(text))
}

func quoted(name string) string { return `"` + name + `"` }

// rows returns the result of a query, one line per row.
func (d database) rows(t testing.TB, query string) string {
	t.Helper()
	rows := value(d.Query(query))(t)
	defer rows.Close()
	columns := value(rows.Columns())(t)
	var b strings.Builder
	for rows.Next() {
		row := make([]any, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		must(t, rows.Scan(to...))
		fmt.Fprintln(&b, row...)
	}
	must(t, rows.Err())
	return b.String()
}

// schemaOf returns all tables, columns and indexes.
func (d database) schemaOf(t testing.TB) string {
	if d.dialect == failed.SQLite {
		return d.rows(t, "SELECT type, name, sql FROM sqlite_master ORDER BY name")
	}
	return d.rows(t, `SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, '')
			FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position`) +
		strings.ReplaceAll(d.rows(t, `SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname`), d.schema, "")
}

// versions returns the schema versions that the tables contain.
func (d database) versions(t testing.TB) string {
	t.Helper()
	var archive, books string
	must(t, d.QueryRow("SELECT value FROM reprise_failed_about WHERE name = 'version'").Scan(&archive))
	must(t, d.QueryRow("SELECT value FROM reprise_ledger_about WHERE name = 'version'").Scan(&books))
	return "archive-" + archive + "-ledger-" + books
}

// stores contains a database and the opened stores in this database.
type stores struct {
	database
	archive    *failed.Archive
	ledger     *ledger.Ledger
	book       *ledger.Book
	duplicates *idempotent.SQL
	now        time.Time
}

func openStores(t testing.TB, d database, now time.Time) *stores {
	t.Helper()
	s := &stores{database: d, now: now}
	clock := func() time.Time { return s.now }
	s.archive = value(failed.Open(t.Context(), d.DB, failed.Config{Dialect: d.dialect, Clock: clock}))(t)
	s.ledger = value(ledger.Open(t.Context(), d.DB, ledger.Config{Dialect: d.dialect, Clock: clock}))(t)
	s.book = value(ledger.NewBook(d.DB, ledger.BookConfig{Dialect: d.dialect, Clock: clock, Process: "worker-1"}))(t)
	s.duplicates = value(idempotent.OpenSQL(t.Context(), d.DB, idempotent.SQLConfig{Dialect: d.dialect}))(t)
	return s
}

// figures contains the counts that the simulated broker returns to the ledger.
type figures ledger.Figures

func (f figures) Queues(context.Context) (map[string]ledger.Figures, error) {
	return map[string]ledger.Figures{"orders": ledger.Figures(f)}, nil
}

// count takes enough samples for the ledger to accept them as exact.
func (s *stores) count(t testing.TB, f ledger.Figures) {
	t.Helper()
	for range 4 {
		s.now = s.now.Add(15 * time.Second)
		must(t, s.book.Write(t.Context()))
		must(t, s.ledger.Take(t.Context(), ledger.Sources{Broker: figures(f)}, []ledger.Account{{Work: []string{"orders"}}}))
	}
}

func failure(id, text string) failed.Message {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return failed.Message{
		Queue: "orders", FailedQueue: "orders.failed", RoutingKey: "orders", Attempts: 2,
		FirstFailed: at.Add(-time.Hour), LastFailed: at, Error: text, Reason: "2 attempts made",
		Errors: []reprise.AttemptError{{Attempt: 1, Time: at.Add(-time.Hour), Error: "first"}, {Attempt: 2, Time: at, Error: text}},
		Content: failed.Content{
			Body: []byte("body of " + id + "\x00\xff"), Properties: failed.Properties{MessageID: id, ContentType: "text/plain"},
			Headers: topology.Table{"number": int16(7), "nested": topology.Table{"list": []any{"a", true}}},
		},
	}
}

const years = 50 * 365 * 24 * time.Hour

// fill stores an example of each kind of record.
func (s *stores) fill(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	ids := value(s.archive.Add(ctx, []failed.Message{
		failure("one", "503 after 12 ms"), failure("two", "503 after 99 ms"), failure("discarded", "gone"),
		failure("edited", "bad number"), failure("replaying", "down"), failure("replayed", "down"),
	}))(t)
	value(s.archive.Discard(ctx, failed.Filter{IDs: ids[2:3]}, "test data", "ann"))(t)
	must(t, s.archive.Edit(ctx, ids[3], 0, failed.Content{Body: []byte("mended"), Properties: failed.Properties{MessageID: "edited"}}, "ann"))
	s.replay(t, ids[5], "replayed")
	value(s.archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{IDs: ids[4:5]}}, "ann"))(t)

	s.book.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	s.count(t, ledger.Figures{})
	for range 7 {
		s.book.Observe(reprise.Event{Kind: reprise.EventDone, Queue: "orders"})
	}
	s.count(t, ledger.Figures{Published: 10, Taken: 7, Messages: 1})

	claimed(t, s, "done", idempotent.Claimed)
	must(t, s.duplicates.Complete(ctx, "done", "token of done", years))
	claimed(t, s, "busy", idempotent.Claimed)
}

func claimed(t testing.TB, s *stores, key string, want idempotent.State) {
	t.Helper()
	if got := value(s.duplicates.Claim(t.Context(), key, "token of "+key, years))(t); got.State != want {
		t.Errorf("key %s: got state %v, want %v", key, got.State, want)
	}
}

// replay replays a message with the message ID want to an embedded broker.
func (s *stores) replay(t testing.TB, id failed.ID, want string) {
	t.Helper()
	r := value(s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{id}}}, "ann"))(t)
	s.finish(t, r.ID, want)
}

// finish completes a replay of the message with the message ID want.
func (s *stores) finish(t testing.TB, id failed.ReplayID, want string) {
	t.Helper()
	b := reprisetest.Listen(t)
	b.Declare(t, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}})
	replayer := value(failed.NewReplayer(b.Client(t, nil), s.archive, failed.ReplayerConfig{}))(t)
	if r := value(replayer.Finish(t.Context(), id))(t); r.State != failed.ReplayDone || r.Sent != 1 {
		t.Errorf("replay: got state %s (%s) and %d sent messages, want done and 1", r.State, r.Why, r.Sent)
	}
	if all := b.Messages(t, "orders"); len(all) != 1 || all[0].MessageID != want {
		t.Errorf("replayed messages: got %v, want %s", all, want)
	}
}

// content returns the complete content of the stores.
func (s *stores) content(t testing.TB) string {
	t.Helper()
	ctx := t.Context()
	var b bytes.Buffer
	value(s.archive.Export(ctx, failed.Filter{}, &b))(t)
	list, _, err := s.archive.List(ctx, failed.Filter{Text: "503"}, failed.Page{})
	must(t, err)
	for _, m := range list {
		fmt.Fprintf(&b, "found %d, %s, %d attempts: %s\n", m.ID, m.State, m.Attempts, m.Error)
	}
	groups, _, err := s.archive.Groups(ctx, failed.GroupFilter{}, failed.Page{})
	must(t, err)
	for _, g := range groups {
		fmt.Fprintf(&b, "group %d, %+v: %s\n", g.ID, g.Counts, g.Text)
	}
	replays, _, err := s.archive.Replays(ctx, failed.Page{})
	must(t, err)
	for _, r := range replays {
		fmt.Fprintf(&b, "replay %d %s by %s: %d of %d sent\n", r.ID, r.State, r.Actor, r.Sent, r.Total)
	}
	acts, _, err := s.archive.Acts(ctx, failed.ActFilter{}, failed.Page{})
	must(t, err)
	for _, a := range acts {
		fmt.Fprintf(&b, "act %d by %s: %s %s %v\n", a.ID, a.Actor, a.Verb, a.Subject, a.Details)
	}
	for _, a := range value(s.ledger.Report(ctx))(t).Accounts {
		fmt.Fprintf(&b, "account %s %s: in %d, done %d, ready %d, missing %d\n", a.Name, a.State, a.In, a.Done, a.Ready, a.Missing)
		for _, d := range a.Differences {
			fmt.Fprintln(&b, d)
		}
	}
	return b.String()
}

// began is the virtual time at which the fixtures start.
var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func updateStores(t *testing.T) {
	for _, d := range []database{openSQLite(t, filepath.Join(t.TempDir(), "test.db")), openPostgres(t)} {
		s := openStores(t, d, began)
		s.fill(t)
		content := s.content(t)
		name, dump := d.dump(t)
		name = filepath.Join(storeFixtures, d.versions(t), name)
		writeFixture(t, name, dump)
		writeFixture(t, strings.TrimSuffix(name, ".gz")+".txt", []byte(content))
	}
}

// eachStore runs a test for each fixture. Without PostgreSQL, it skips the PostgreSQL fixtures. `make test` starts
// PostgreSQL, and treats a skipped test as a failure.
func eachStore(t *testing.T, test func(t *testing.T, d database, name string)) {
	for _, name := range matches(t, storeFixtures+"/*/*.gz") {
		t.Run(filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name), func(t *testing.T) {
			test(t, fromFixture(t, name), name)
		})
	}
}

// This version can use all records of an older version, such as an unfinished replay, a group and a ledger. If the schema
// version has not changed, the older version can use the records afterwards.
func TestStoresOfOlderVersion(t *testing.T) {
	eachStore(t, func(t *testing.T, d database, name string) {
		then, before := d.versions(t), d.schemaOf(t)
		s := openStores(t, d, began.Add(2*time.Minute))
		want := string(value(os.ReadFile(strings.TrimSuffix(name, ".gz") + ".txt"))(t))
		if diff := cmp.Diff(want, s.content(t)); diff != "" {
			t.Errorf("this version reads different content (-then +now):\n%s", diff)
		}
		s.use(t)
		if now := d.versions(t); now != then {
			return // an older version cannot read the migrated tables
		}
		if diff := cmp.Diff(before, d.schemaOf(t)); diff != "" {
			t.Errorf("schema changed (-then +now):\n%s", diff)
		}
	})
}

// use performs an operation on each kind of record in the fixtures.
func (s *stores) use(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	running := value(s.archive.Running(ctx))(t)
	if len(running) != 1 {
		t.Fatalf("got %d running replays, want 1", len(running))
	}
	s.finish(t, running[0].ID, "replaying")
	s.replay(t, 4, "edited")
	if n := value(s.archive.Restore(ctx, failed.Filter{IDs: []failed.ID{3}}, "bob"))(t); n != 1 {
		t.Errorf("restored messages: got %d, want 1", n)
	}
	group := value(s.archive.Get(ctx, 1))(t).Group
	same := strings.ReplaceAll(value(s.archive.Group(ctx, group))(t).Text, "*", "1")
	value(s.archive.Add(ctx, []failed.Message{failure("new", same)}))(t)
	if g := value(s.archive.Group(ctx, group))(t); g.Counts.Failed != 3 {
		t.Errorf("got %d failed messages in the group, want 3", g.Counts.Failed)
	}
	must(t, s.archive.Healthy(ctx))

	// The broker has published two more messages, and workers have processed only one of them.
	s.book.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	s.book.Observe(reprise.Event{Kind: reprise.EventDone, Queue: "orders"})
	s.count(t, ledger.Figures{Published: 12, Taken: 9, Messages: 1})
	for _, a := range value(s.ledger.Report(ctx))(t).Accounts {
		if a.In != 12 || a.Done != 8 || a.Missing != 3 {
			t.Errorf("account: got in %d, done %d, missing %d, want 12, 8, 3", a.In, a.Done, a.Missing)
		}
	}

	claimed(t, s, "done", idempotent.Done)
	claimed(t, s, "free", idempotent.Claimed)
	if got := value(s.duplicates.Claim(ctx, "busy", "another token", years))(t); got.State != idempotent.Busy {
		t.Errorf("key busy: got state %v, want Busy", got.State)
	}
	must(t, s.duplicates.Complete(ctx, "busy", "token of busy", years))
}

// Fixtures with the current schema exist.
func TestFixturesOfCurrentStoresExist(t *testing.T) {
	if *update {
		updateStores(t)
	}
	d := openSQLite(t, filepath.Join(t.TempDir(), "test.db"))
	openStores(t, d, began)
	for _, name := range []string{"sqlite.db.gz", "postgres.sql.gz"} {
		matches(t, filepath.Join(storeFixtures, d.versions(t), name))
	}
}

// The archive and the ledger refuse tables with a newer schema version, and do not change them.
func TestNewerStoresAreRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, d database, _ string) {
		for _, table := range []string{"reprise_failed_about", "reprise_ledger_about"} {
			_, err := d.Exec("UPDATE " + table + " SET value = '99' WHERE name = 'version'")
			must(t, err)
		}
		before := d.everything(t)
		_, err := failed.Open(t.Context(), d.DB, failed.Config{Dialect: d.dialect})
		_, err2 := ledger.Open(t.Context(), d.DB, ledger.Config{Dialect: d.dialect})
		for _, err := range []error{err, err2} {
			if err == nil || !strings.Contains(err.Error(), "got 99") || !strings.Contains(err.Error(), "use a newer program") {
				t.Errorf("Open: got error %v, want one about version 99", err)
			}
		}
		if diff := cmp.Diff(before, d.everything(t)); diff != "" {
			t.Errorf("tables changed (-before +after):\n%s", diff)
		}
	})
}

// everything returns the schema, and the content of all tables except the search index of SQLite.
func (d database) everything(t testing.TB) string {
	t.Helper()
	tables := "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY table_name"
	if d.dialect == failed.SQLite {
		tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'reprise_failed_search%' ORDER BY name"
	}
	var all strings.Builder
	all.WriteString(d.schemaOf(t))
	for table := range strings.FieldsSeq(d.rows(t, tables)) {
		all.WriteString(table + "\n" + d.rows(t, `SELECT * FROM "`+table+`"`))
	}
	return all.String()
}
