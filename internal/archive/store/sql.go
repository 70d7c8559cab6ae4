package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// tx is a transaction. Write transactions run one at a time.
type tx struct {
	*sqlkit.Tx
	*Archive
}

// write runs f in a transaction and commits it if f returns nil. It returns ErrUnavailable if another database has
// replaced the opened database. The time limit includes the wait for other writers.
func (a *Archive) write(ctx context.Context, f func(*tx) error) error {
	end := time.Now().Add(sqlkit.WriteLimit)
	return a.writeAlone(ctx, func() error {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		return a.commit(ctx, false, f)
	})
}

// writeMany is like write, but has a longer time limit. Use it for changes of many messages.
func (a *Archive) writeMany(ctx context.Context, f func(*tx) error) error {
	return a.writeAlone(ctx, func() error { return a.commit(sqlkit.Long(ctx), true, f) })
}

// writeAlone runs f while no other goroutine of this process writes. Otherwise the other writers would poll in SQLite,
// and would occupy connections that readers need in PostgreSQL.
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
	return fmt.Errorf("%w: timed out after %s while waiting for other writers (try again)", ErrUnavailable, time.Since(begun).Round(100*time.Millisecond))
}

func (a *Archive) transaction(ctx context.Context, begin []string, f func(*tx) error) error {
	return a.db.Transaction(ctx, begin, func(t *sqlkit.Tx) error { return f(&tx{t, a}) })
}

// next reserves n new IDs of a kind and returns the first.
func (t *tx) next(kind string, n int) (first int64, err error) {
	err = t.Row(`UPDATE {counter} SET last = last + $2 WHERE name = $1 RETURNING last`, kind, n).Scan(&first)
	return first - int64(n) + 1, err
}

// insert adds rows to a table. indexed is the name of the column that contains search terms, or "".
func (t *tx) insert(table string, columns []string, indexed string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	// In SQLite, each statement inserts one row, because there are no network round trips, and the driver searches all
	// arguments for each argument.
	if t.cfg.Dialect == SQLite {
		return t.ExecEach(t.insertion(table, columns, indexed, 1), rows)
	}
	// In PostgreSQL, one statement inserts many rows, because each statement needs a network round trip.
	const most = 200 // PostgreSQL accepts 65535 arguments
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

// position returns the position of a message in lists. It combines the second of the last failure with the ID, so
// that one number sorts by both. SQLite uses it as the row ID, and FTS5 as the document ID. Times before 1970 and
// after 2106 are clamped. Positions are unique, unless two IDs of the same second differ by a multiple of 2³¹.
func position(lastFailed time.Time, id failed.ID) int64 {
	return positionOf(lastFailed) | int64(id)&(1<<idBits-1)
}

const idBits = 31

func positionOf(t time.Time) int64 { return min(max(t.Unix(), 0), math.MaxUint32) << idBits }
