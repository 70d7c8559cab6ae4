package idempotent_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
)

var errConn = errors.New("connection failed")

// flakyConnector opens connections whose commits fail while fail is set. If commit is set, the commit happens before
// the failure.
type flakyConnector struct {
	real         driver.Driver
	source       string
	fail, commit atomic.Bool
}

func (f *flakyConnector) Connect(context.Context) (driver.Conn, error) {
	c, err := f.real.Open(f.source)
	if err != nil {
		return nil, err
	}
	return &flakyConn{c.(conn), f}, nil
}

func (f *flakyConnector) Driver() driver.Driver { return f.real }

// conn combines the interfaces of a driver connection that database/sql uses.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type flakyConn struct {
	conn
	*flakyConnector
}

func (c *flakyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &flakyTx{tx, c.flakyConnector}, nil
}

type flakyTx struct {
	driver.Tx
	*flakyConnector
}

func (t *flakyTx) Commit() error {
	if !t.commit.Load() {
		return errors.Join(errConn, t.Rollback())
	}
	err := t.Tx.Commit()
	if t.fail.Load() {
		return errors.Join(errConn, err)
	}
	return err
}
