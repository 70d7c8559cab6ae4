package failed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// tx is a transaction. There is one at a time that writes.
type tx struct {
	*sqlkit.Tx
	*Archive
}

// write runs f in a transaction, which is committed if f returns nil, unless the database
// is no longer the one that was opened. The time limit includes the wait for other writers.
func (a *Archive) write(ctx context.Context, f func(*tx) error) error {
	end := time.Now().Add(sqlkit.WriteLimit)
	return a.writeAlone(ctx, func() error {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		return a.commit(ctx, false, f)
	})
}

// writeMany is write for a change of any number of messages, which may take long.
func (a *Archive) writeMany(ctx context.Context, f func(*tx) error) error {
	return a.writeAlone(ctx, func() error { return a.commit(sqlkit.Long(ctx), true, f) })
}

// writeAlone runs f while no other in this process writes: SQLite would have them poll, and
// PostgreSQL would have each take a connection from readers.
func (a *Archive) writeAlone(ctx context.Context, f func() error) error {
	begun := time.Now()
	limit := time.NewTimer(sqlkit.WriteLimit)
	defer limit.Stop()
	select {
	case a.writing <- struct{}{}:
		defer func() { <-a.writing }()
		return f()
	case <-limit.C:
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("%w: other changes have taken %s: try again", ErrUnavailable, time.Since(begun).Round(100*time.Millisecond))
}

func (a *Archive) transaction(ctx context.Context, begin []string, f func(*tx) error) error {
	return a.db.Transaction(ctx, begin, func(t *sqlkit.Tx) error { return f(&tx{t, a}) })
}

// next returns the first of n new numbers of a kind.
func (t *tx) next(kind string, n int) (first int64, err error) {
	err = t.Row(`UPDATE {counter} SET last = last + $2 WHERE name = $1 RETURNING last`, kind, n).Scan(&first)
	return first - int64(n) + 1, err
}

// insert adds rows to a table. A value of the column indexed is the terms of a search.
func (t *tx) insert(table string, columns []string, indexed string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	if t.cfg.Dialect == SQLite { // it is not far away, and its driver looks for each argument among all of them
		return t.ExecEach(t.insertion(table, columns, indexed, 1), rows)
	}
	// Many with one statement, since each is a way to the server and back.
	const most = 200 // PostgreSQL takes 65535 arguments
	const bytes = 8 << 20
	for len(rows) > 0 {
		n := 0
		for size := 0; n < min(len(rows), most) && size < bytes; n++ {
			for _, v := range rows[n] {
				switch x := v.(type) {
				case []byte:
					size += len(x)
				case string:
					size += len(x)
				}
			}
		}
		if _, err := t.Exec(t.insertion(table, columns, indexed, n), slices.Concat(rows[:n]...)...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (t *tx) insertion(table string, columns []string, indexed string, rows int) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ")
	n := 0
	for i := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j, column := range columns {
			if j > 0 {
				b.WriteString(", ")
			}
			n++
			arg := "$" + strconv.Itoa(n)
			if column == indexed {
				arg = t.d.indexed(arg)
			}
			b.WriteString(arg)
		}
		b.WriteByte(')')
	}
	return b.String()
}

// position is a message's place in lists: the second of its last failure, and
// within it its ID. It orders by both with one number, which also is what SQLite
// finds rows by, and FTS5 its documents. Times before 1970 and after 2106 are at the
// ends. No two messages have the same until IDs of one second are 2³¹ apart.
func position(lastFailed time.Time, id ID) int64 {
	return positionOf(lastFailed) | int64(id)&(1<<idBits-1)
}

const idBits = 31

func positionOf(t time.Time) int64 { return min(max(t.Unix(), 0), math.MaxUint32) << idBits }
