package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
	"github.com/reprisemq/reprise/outbox"
)

// timeout limits the wait for expected events. No test depends on a short timeout.
const timeout = 2 * time.Minute

// database is an empty database for one test.
type database struct {
	*sql.DB
	dialect        outbox.Dialect
	driver, source string // arguments of sql.Open
}

// eachDatabase runs test for each kind of database. It skips a subtest if no server is configured. `make test` provides the
// servers, and treats a skipped test as a failure.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Helper()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

var databases = map[string]func(testing.TB) database{
	"sqlite":   openSQLite,
	"postgres": func(t testing.TB) database { return open(t, outbox.PostgreSQL, "pgx", pgtest.Schema(t)) },
	"mariadb":  func(t testing.TB) database { return open(t, outbox.MySQL, "mysql", testkit.MariaDB(t)) },
}

func openSQLite(t testing.TB) database {
	file := filepath.Join(t.TempDir(), "test.db")
	return open(t, outbox.SQLite, "sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate")
}

func open(t testing.TB, d outbox.Dialect, driver, source string) database {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return database{db, d, driver, source}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// clock is a virtual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// box opens a box with a virtual clock, or with the clock of the database if c is nil.
func (d database) box(t fataler, c *clock, options ...func(*outbox.Config)) *outbox.Box {
	t.Helper()
	cfg := outbox.Config{Dialect: d.dialect}
	if c != nil {
		cfg.Clock = c.Now
	}
	for _, o := range options {
		o(&cfg)
	}
	b, err := outbox.Open(t.Context(), d.DB, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recorder is a Publisher that records messages. before and after are called with the messages of a batch before and after
// they are stored, and can return an error for all of them.
type recorder struct {
	before, after func(messages []*reprise.Message) error

	mu     sync.Mutex
	stored []reprise.Message
}

func (p *recorder) PublishBatch(_ context.Context, messages []*reprise.Message) error {
	if p.before != nil {
		if err := p.before(messages); err != nil {
			return err
		}
	}
	p.mu.Lock()
	for _, m := range messages {
		p.stored = append(p.stored, *m)
	}
	p.mu.Unlock()
	if p.after != nil {
		return p.after(messages)
	}
	return nil
}

func (p *recorder) ids() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.stored {
		all = append(all, m.MessageID)
	}
	return all
}

// want fails the test unless exactly the messages with these ids were stored, in this order.
func (p *recorder) want(t testing.TB, ids ...string) {
	t.Helper()
	if got := p.ids(); fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("published messages: got %v, want %v", got, ids)
	}
}

func relay(t testing.TB, b *outbox.Box, to outbox.Publisher, options ...func(*outbox.RelayConfig)) *outbox.Relay {
	t.Helper()
	var cfg outbox.RelayConfig
	for _, o := range options {
		o(&cfg)
	}
	r, err := outbox.NewRelay(b, to, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// step makes a relay publish everything that is due.
func step(t testing.TB, r *outbox.Relay) {
	t.Helper()
	for {
		more, err := outbox.Step(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

func message(id string) *outbox.Message {
	return &outbox.Message{Message: reprise.Message{MessageID: id, RoutingKey: "orders", Body: []byte(id)}}
}

func schedule(t testing.TB, b *outbox.Box, messages ...*outbox.Message) {
	t.Helper()
	if err := b.Schedule(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
}

func begin(t fataler, db database) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func insert(t fataler, b *outbox.Box, tx *sql.Tx, messages ...*outbox.Message) {
	t.Helper()
	if err := b.Insert(t.Context(), tx, messages...); err != nil {
		t.Fatal(err)
	}
}

func commit(t fataler, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
