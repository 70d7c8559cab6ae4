package failed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// ErrUnavailable says that the archive's database cannot be used at present: it does not
// answer within 10 s (20 s for a change), cannot be reached, takes no writes, or is not the
// one that was opened: its file was deleted or replaced, its tables were dropped, or it was
// restored from a backup that lacks what this process wrote. Nothing was changed, or nobody
// knows whether it was. The same call may succeed later, but for the backup: then Open has
// to be called anew.
var ErrUnavailable = sqlkit.ErrUnavailable

// lineage notices that a database has gone back in time or is another one. Each
// transaction that writes counts itself in the database, and the process remembers how far
// the count has come. A database that has counted less lacks something that was committed.
type lineage struct {
	commits atomic.Int64          // the least that the database must have counted
	broken  atomic.Pointer[error] // why nothing is written any more
	refused atomic.Bool           // the latest transaction could not be written
}

// errEmptied is returned while tables are restored whose rows come later.
var errEmptied = sqlkit.Gone("the tables are empty: the name and age of the archive are missing (restore the rows)")

// commit runs f in a transaction, and counts that.
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
	if !errors.Is(err, context.Canceled) { // that says nothing of the database
		a.refused.Store(errors.Is(err, ErrUnavailable))
	}
	if err == nil {
		a.commits.Store(commits)
	}
	return err
}

// descends returns an error if a database of this name that has counted so many commits is
// not the one that this process has written to, known times at the least, and remembers it:
// its numbers may mean other messages.
func (a *Archive) descends(origin string, commits, known int64) error {
	var err error
	switch {
	case origin != a.origin:
		err = sqlkit.Gone("the database has another archive now than the one that was opened (restart this process to use it)")
	case commits < known:
		err = sqlkit.Gone(fmt.Sprintf("the database is older than what this process wrote to it: the last %d changes are missing (if it was restored from a backup, restart this process to go on with it)", known-commits))
	default:
		return nil
	}
	if a.broken.CompareAndSwap(nil, &err) {
		a.cfg.Logger.Error("archive is another one", "error", err)
	}
	return err
}

// Healthy returns nil if the archive can be read and written, or else an ErrUnavailable, or
// whatever is wrong. It asks the database once, and does not wait for other writers: ctx
// should have a deadline.
func (a *Archive) Healthy(ctx context.Context) (err error) {
	defer annotate(&err, "asking the archive")
	if broken := a.broken.Load(); broken != nil {
		return *broken
	}
	known := a.commits.Load() // before the database is asked
	var commits int64
	var origin string
	err = a.db.Row(ctx, `SELECT c.last, o.value FROM {counter} c, {about} o WHERE c.name = 'commit' AND o.name = 'archive'`).Scan(&commits, &origin)
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
