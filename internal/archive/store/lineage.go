package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// ErrUnavailable is returned if the database of the archive cannot be reached, rejects writes, or does not respond
// within 10 s (20 s for a change, 5 min for an operation on many messages). It is also returned if the database is not
// the database that was opened, because the file was deleted or replaced, the tables were dropped, or a backup was
// restored that lacks changes of this process. After a failed change, it may be unknown whether the change took effect.
// The same call may succeed later. After restoring a backup, call Open again.
var ErrUnavailable = sqlkit.ErrUnavailable

// lineage detects a replaced or restored database. Each write transaction increments a counter in the database, and
// the process remembers the latest value. If the counter in the database is lower, the database lacks committed
// changes.
type lineage struct {
	commits atomic.Int64          // minimum value of the counter in the database
	broken  atomic.Pointer[error] // the cause, if the archive no longer accepts writes
	refused atomic.Bool           // whether the latest transaction failed with ErrUnavailable
}

// errEmptied is returned during a restore, while the tables exist but are empty.
var errEmptied = sqlkit.Gone("tables of the archive are empty (restore the rows)")

// commit runs f in a transaction and increments the commit counter.
func (a *Archive) commit(ctx context.Context, long bool, f func(*tx) error) error {
	if broken := a.broken.Load(); broken != nil {
		return *broken
	}
	var commits int64
	err := a.transaction(ctx, a.d.begin(a.cfg.Prefix, long), func(tx *tx) error {
		var origin sql.NullString
		err := tx.Row(`UPDATE {counter} SET last = last + 1 WHERE name = 'commit' RETURNING last, (SELECT value FROM {about} WHERE name = 'archive')`).Scan(&commits, &origin)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !origin.Valid {
			return errEmptied
		}
		if err == nil {
			err = a.descends(origin.String, commits-1, a.commits.Load())
		}
		if err != nil {
			return err
		}
		return f(tx)
	})
	if !errors.Is(err, context.Canceled) { // a canceled context does not indicate the state of the database
		a.refused.Store(errors.Is(err, ErrUnavailable))
	}
	if err == nil {
		a.commits.Store(commits)
	}
	return err
}

// descends returns an error if the origin or the number of commits does not match the database to which this process
// has written. known is the minimum number of commits. The error is permanent, because IDs that this process has read
// may identify other messages in the database.
func (a *Archive) descends(origin string, commits, known int64) error {
	var err error
	switch {
	case origin != a.origin:
		err = sqlkit.Gone("database contains a different archive than the one opened (restart this process to use it)")
	case commits < known:
		err = sqlkit.Gone(fmt.Sprintf("changes of this process are missing in the database: %d (if it was restored from a backup, restart this process)", known-commits))
	default:
		return nil
	}
	if a.broken.CompareAndSwap(nil, &err) {
		a.cfg.Logger.Error("archive replaced", "error", err)
	}
	return err
}

// Healthy returns nil if the archive is readable and writable. Otherwise it returns the cause, usually an
// ErrUnavailable. It sends one query and does not wait for other writers. If the latest write failed with
// ErrUnavailable, Healthy also commits an empty transaction, which does wait. ctx should have a deadline.
func (a *Archive) Healthy(ctx context.Context) error {
	if broken := a.broken.Load(); broken != nil {
		return *broken
	}
	known := a.commits.Load() // before the query, because another call may commit in the meantime
	var commits int64
	var origin string
	err := a.db.Row(ctx, `SELECT c.last, o.value FROM {counter} c, {about} o WHERE c.name = 'commit' AND o.name = 'archive'`).Scan(&commits, &origin)
	if errors.Is(err, sql.ErrNoRows) {
		return errEmptied
	}
	if err != nil {
		return err
	}
	if err := a.descends(origin, commits, known); err != nil {
		return err
	}
	if !a.refused.Load() {
		return nil
	}
	return a.write(ctx, func(*tx) error { return nil })
}
