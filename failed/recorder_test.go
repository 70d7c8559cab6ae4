package failed_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"sync"
)

// query is a statement with its arguments.
type query struct {
	text string
	args []any
}

// recorder keeps the queries of connections.
type recorder struct {
	mu  sync.Mutex
	all []query
}

// take returns the queries since it was last called.
func (r *recorder) take() []query {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// recording opens connections whose queries are recorded.
type recording struct {
	driver driver.Driver
	source string
	to     *recorder
}

func (r recording) Driver() driver.Driver { return r.driver }

func (r recording) Connect(context.Context) (driver.Conn, error) {
	c, err := r.driver.Open(r.source)
	return recordedConn{c, r.to}, err
}

type recordedConn struct {
	driver.Conn
	to *recorder
}

func (c recordedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(text, "SELECT") || strings.HasPrefix(text, "WITH") {
		q := query{text: text}
		for _, a := range args {
			q.args = append(q.args, a.Value)
		}
		c.to.mu.Lock()
		c.to.all = append(c.to.all, q)
		c.to.mu.Unlock()
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
}

func (c recordedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

func (c recordedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
