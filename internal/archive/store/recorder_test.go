package store_test

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
)

// query is a statement with its arguments.
type query struct {
	text string
	args []any
}

// recorder stores the queries that its connections execute.
type recorder struct {
	mu  sync.Mutex
	all []query
}

// add stores a statement, unless it has no query plan.
func (r *recorder) add(text string, args []driver.NamedValue) {
	verb, _, _ := strings.Cut(text, " ")
	if !slices.Contains([]string{"SELECT", "WITH", "UPDATE", "DELETE"}, verb) {
		return
	}
	q := query{text: text}
	for _, a := range args {
		q.args = append(q.args, a.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, q)
}

// take returns the queries since the previous call.
func (r *recorder) take() []query {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// recordingConnector opens connections whose queries are recorded.
type recordingConnector struct {
	driver driver.Driver
	source string
	to     *recorder
}

func (r recordingConnector) Driver() driver.Driver { return r.driver }

func (r recordingConnector) Connect(context.Context) (driver.Conn, error) {
	c, err := r.driver.Open(r.source)
	return recordedConn{c, r.to}, err
}

type recordedConn struct {
	driver.Conn
	to *recorder
}

func (c recordedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.to.add(text, args)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
}

func (c recordedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.to.add(text, args)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

func (c recordedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
