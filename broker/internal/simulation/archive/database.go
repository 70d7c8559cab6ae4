package archive

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// busyTimeout is how long a statement waits for a locked database, as in the command.
const busyTimeout = 5 * time.Second

// Database is what one process has of an SQLite file: a [driver.Connector] whose statements can
// hang, fail, or be the last thing that the process does.
//
// SQLite itself waits for locks by a system call, during which the clock of a bubble stands
// still. So its own busy timeout is 0, and the wait for a lock is made here.
type Database struct {
	path string

	// Read-locked while SQLite works, which takes no virtual time.
	working sync.RWMutex
	dead    atomic.Bool
	died    chan struct{}

	mu     sync.Mutex
	fault  *Fault
	calls  int
	strike map[int]strike // by call
}

type strike struct {
	after bool // the statement is executed, and its answer is lost
	do    func()
}

// newDatabase returns the database in a file, for one process.
func newDatabase(path string) *Database {
	return &Database{path: path, died: make(chan struct{}), strike: make(map[int]strike)}
}

// Fault is what is wrong with a database until it is healed.
type Fault struct {
	Hangs  bool // statements do not return before their context ends
	Code   int  // SQLite's result code of statements; 0: they succeed
	Writes bool // only statements that write are struck
	After  bool // a commit takes place before its statement is struck

	healed chan struct{}
}

// SQLite's result codes. https://www.sqlite.org/rescode.html
const (
	CodeReadOnly = 8
	CodeIOError  = 10
	CodeFull     = 13
)

// Break makes a fault strike all statements from now on, instead of any other. The function that
// it returns ends it, and no other.
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

// Heal ends the fault. A statement that hangs goes on.
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

// At has do called at the n-th statement from now on: before it, or when it was executed and
// its answer is not there yet.
func (d *Database) At(n int, after bool, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.strike[d.calls+n] = strike{after, do}
}

// kill makes each statement fail without reaching the file. When what SQLite works on at this
// moment is done, it calls then. Connections are closed afterwards, which changes the file.
func (d *Database) kill(then func()) {
	if d.dead.CompareAndSwap(false, true) {
		close(d.died)
	}
	d.working.Lock()
	defer d.working.Unlock()
	then()
}

var errDead = errors.New("the process was killed")

// failure is an error as SQLite returns it.
type failure int

func (f failure) Error() string { return fmt.Sprintf("simulated failure of SQLite (%d)", int(f)) }
func (f failure) Code() int     { return int(f) }

// call executes a statement, or whatever strikes it.
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
			if err := d.patient(ctx, query, execute); err != nil {
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
		case <-d.died:
		}
	}
	err := d.patient(ctx, query, execute)
	if struck && due.after {
		due.do()
		return errDead
	}
	return err
}

// patient executes a statement, and waits while the database is locked.
func (d *Database) patient(ctx context.Context, query string, execute func() error) error {
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
		case <-d.died:
			return errDead
		}
	}
}

// once executes a statement without waiting.
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

func verb(query string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	return strings.ToUpper(strings.TrimSuffix(word, ";"))
}

func isCommit(query string) bool { return verb(query) == "COMMIT" }

// waits reports whether SQLite would wait for a lock with this statement: within a transaction
// that writes, nothing is locked any more.
func waits(query string) bool { return verb(query) != "ROLLBACK" }

// writes reports whether a statement needs a database that can be written to.
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
		if opened != nil { // the process was killed then
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
		r, err = c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), query, args)
		return err
	})
	return r, err
}

// QueryContext implements [driver.QueryerContext].
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	var r driver.Rows
	err := c.d.call(ctx, query, func() (err error) {
		r, err = c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), query, args)
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
		s, err = c.Conn.Prepare(query)
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

// Close implements [driver.Conn]. The file is closed whatever has become of the process.
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

// abandon closes the rows of a query during which the process was killed: otherwise the
// connection would keep its locks, which a killed process does not.
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
