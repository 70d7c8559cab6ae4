package archive

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// busyTimeout is the maximum time that a statement waits for a locked database. The reprise command uses the same value.
const busyTimeout = 5 * time.Second

// Database gives one process access to an SQLite file. It is a [driver.Connector] whose statements can hang, fail or
// kill the process.
//
// SQLite waits for locks in a system call, during which the virtual clock stops. Therefore the busy timeout of SQLite is 0,
// and Database waits for locks itself. In statements, the virtual time replaces the clock of SQLite.
type Database struct {
	path string

	// working is read-locked while SQLite executes a statement. Virtual time does not advance during the execution.
	working sync.RWMutex
	dead    atomic.Bool
	killed  chan struct{}

	mu     sync.Mutex
	fault  *Fault
	calls  int
	strike map[int]strike // by the number of the statement
}

type strike struct {
	after bool // the statement is executed, but its result is lost
	do    func()
}

// NewDatabase returns a Database that gives one process access to the file at path.
func NewDatabase(path string) *Database {
	return &Database{path: path, killed: make(chan struct{}), strike: make(map[int]strike)}
}

// Fault is a fault of a database.
type Fault struct {
	Hangs  bool // statements return only when their context is done or the fault is removed
	Code   int  // SQLite result code of statements; 0: success
	Writes bool // the fault affects only statements that write
	After  bool // a commit is executed before it fails

	healed chan struct{}
}

// These constants are result codes of SQLite. See https://www.sqlite.org/rescode.html.
const (
	CodeReadOnly = 8
	CodeIOError  = 10
	CodeFull     = 13
)

// Break replaces the current fault with f, which affects all later statements. The returned function removes only f.
func (d *Database) Break(f Fault) (heal func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heal()
	f.healed = make(chan struct{})
	d.fault = &f
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.fault == &f {
			d.heal()
		}
	}
}

// Heal removes the fault. Statements that hang then continue.
func (d *Database) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heal()
}

func (d *Database) heal() {
	if d.fault != nil {
		close(d.fault.healed)
		d.fault = nil
	}
}

// At calls the function do at the n-th statement from now: before its execution, or, if after is set, between its
// execution and the return of its result.
func (d *Database) At(n int, after bool, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.strike[d.calls+n] = strike{after, do}
}

// Kill makes all later statements fail without access to the file. When the statements in progress have ended, it
// calls its argument. The caller must close the connections after Kill has returned, because closing them changes the
// file.
func (d *Database) Kill(then func()) {
	if d.dead.CompareAndSwap(false, true) {
		close(d.killed)
	}
	d.working.Lock()
	defer d.working.Unlock()
	then()
}

var errDead = errors.New("the process was killed")

// failure is an error with an SQLite result code.
type failure int

func (f failure) Error() string { return fmt.Sprintf("simulated failure of SQLite (%d)", int(f)) }
func (f failure) Code() int     { return int(f) }

// call executes a statement or applies the fault that affects it.
func (d *Database) call(ctx context.Context, query string, execute func() error) error {
	d.mu.Lock()
	d.calls++
	due, struck := d.strike[d.calls]
	delete(d.strike, d.calls)
	fault := d.fault
	d.mu.Unlock()
	if struck && !due.after {
		due.do()
	}
	if fault != nil && (!fault.Writes || writes(query)) {
		if fault.After && isCommit(query) {
			if err := d.executeWaiting(ctx, query, execute); err != nil {
				return err
			}
			execute = func() error { return nil }
		}
		if fault.Code != 0 {
			return failure(fault.Code)
		}
		select {
		case <-fault.healed:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.killed:
		}
	}
	err := d.executeWaiting(ctx, query, execute)
	if struck && due.after {
		due.do()
		return errDead
	}
	return err
}

// executeWaiting executes a statement and waits while the database is locked.
func (d *Database) executeWaiting(ctx context.Context, query string, execute func() error) error {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := d.once(execute)
		if !isBusy(err) || !waits(query) || time.Since(begun) > busyTimeout {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		case <-d.killed:
			return errDead
		}
	}
}

// once executes a statement without waiting for locks.
func (d *Database) once(execute func() error) error {
	d.working.RLock()
	defer d.working.RUnlock()
	if d.dead.Load() {
		return errDead
	}
	return execute()
}

func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == 5
}

// timed returns a statement with the virtual time.
func timed(query string) string {
	return strings.ReplaceAll(query, sqlkit.SQLite.Clock(), strconv.FormatInt(time.Now().UnixMilli(), 10))
}

func verb(query string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	return strings.ToUpper(strings.TrimSuffix(word, ";"))
}

func isCommit(query string) bool { return verb(query) == "COMMIT" }

// waits reports whether SQLite would wait for a lock to execute this statement. A rollback does not need a lock.
func waits(query string) bool { return verb(query) != "ROLLBACK" }

// writes reports whether a statement needs a writable database.
func writes(query string) bool {
	switch verb(query) {
	case "SELECT", "PRAGMA", "ROLLBACK", "WITH":
		return false
	}
	return true
}

// Connect implements [driver.Connector].
func (d *Database) Connect(ctx context.Context) (driver.Conn, error) {
	var opened driver.Conn
	err := d.call(ctx, "PRAGMA open", func() (err error) {
		u := url.URL{Scheme: "file", Path: d.path, RawQuery: "_pragma=busy_timeout(0)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
		opened, err = d.Driver().Open(u.String())
		return err
	})
	if err != nil {
		if opened != nil { // the process was killed during the call
			_ = opened.Close()
		}
		return nil, err
	}
	return &conn{d, opened}, nil
}

// Driver implements [driver.Connector].
func (*Database) Driver() driver.Driver { return &sqlite.Driver{} }

// conn is a connection to the file.
type conn struct {
	d *Database
	driver.Conn
}

// ExecContext implements [driver.ExecerContext].
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	if strings.HasPrefix(query, "PRAGMA busy_timeout") {
		return driver.ResultNoRows, nil
	}
	err = c.d.call(ctx, query, func() (err error) {
		r, err = c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), timed(query), args)
		return err
	})
	return r, err
}

// QueryContext implements [driver.QueryerContext].
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	var r driver.Rows
	err := c.d.call(ctx, query, func() (err error) {
		r, err = c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), timed(query), args)
		return err
	})
	if err != nil {
		abandon(r)
		return nil, err
	}
	return &rows{r, c.d}, nil
}

// Prepare implements [driver.Conn].
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	var s driver.Stmt
	err := c.d.once(func() (err error) {
		s, err = c.Conn.Prepare(timed(query))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &stmt{s, c.d, query}, nil
}

// BeginTx implements [driver.ConnBeginTx].
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	var t driver.Tx
	err := c.d.call(ctx, "BEGIN", func() (err error) {
		t, err = c.Conn.(driver.ConnBeginTx).BeginTx(context.WithoutCancel(ctx), options)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &tx{t, c.d}, nil
}

// Ping implements [driver.Pinger].
func (c *conn) Ping(ctx context.Context) error {
	return c.d.call(ctx, "SELECT 1", func() error { return c.Conn.(driver.Pinger).Ping(ctx) })
}

// Close implements [driver.Conn]. It closes the file even if the process was killed.
func (c *conn) Close() error {
	c.d.working.RLock()
	defer c.d.working.RUnlock()
	return c.Conn.Close()
}

// ResetSession implements [driver.SessionResetter].
func (c *conn) ResetSession(ctx context.Context) error {
	if c.d.dead.Load() {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

type tx struct {
	driver.Tx
	d *Database
}

// Commit implements [driver.Tx].
func (t *tx) Commit() error {
	return t.d.call(context.Background(), "COMMIT", t.Tx.Commit)
}

// Rollback implements [driver.Tx].
func (t *tx) Rollback() error { return t.d.once(t.Tx.Rollback) }

type stmt struct {
	driver.Stmt
	d     *Database
	query string
}

// ExecContext implements [driver.StmtExecContext].
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.d.call(ctx, s.query, func() (err error) {
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(context.WithoutCancel(ctx), args)
		return err
	})
	return r, err
}

// QueryContext implements [driver.StmtQueryContext].
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.d.call(ctx, s.query, func() (err error) {
		r, err = s.Stmt.(driver.StmtQueryContext).QueryContext(context.WithoutCancel(ctx), args)
		return err
	})
	if err != nil {
		abandon(r)
		return nil, err
	}
	return &rows{r, s.d}, nil
}

// abandon closes the rows of a query during which the process was killed. Otherwise the connection would keep its
// locks, whereas a killed process releases them.
func abandon(r driver.Rows) {
	if r != nil {
		_ = r.Close()
	}
}

type rows struct {
	driver.Rows
	d *Database
}

// Next implements [driver.Rows].
func (r *rows) Next(dest []driver.Value) error {
	return r.d.once(func() error { return r.Rows.Next(dest) })
}

// Close implements [driver.Rows].
func (r *rows) Close() error {
	r.d.working.RLock()
	defer r.d.working.RUnlock()
	return r.Rows.Close()
}
