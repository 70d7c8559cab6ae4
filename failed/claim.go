package failed

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Claim makes an owner the one that carries out a running replay, for as long as the
// lease, or for longer if it is already. It reports false where another one is, or
// the replay does not run. The time is that of Config.Clock: the clocks of
// machines that share a database should agree to within a second or so.
func (a *Archive) claimReplay(ctx context.Context, id ReplayID, owner string, lease time.Duration) (mine bool, err error) {
	defer annotate(&err, "claiming replay %d", id)
	now := a.now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`UPDATE {replay} SET owner = $2, lease = $3 WHERE id = $1 AND ended = 0 AND (owner = $2 OR lease <= $4)`,
			int64(id), owner, sqlkit.Millis(now.Add(lease)), sqlkit.Millis(now))
		return err
	})
	return n == 1 && err == nil, err
}

// Release ends the claim of an owner, if it has it, and with it a replay that is
// ReplayCancelling.
func (a *Archive) releaseReplay(ctx context.Context, id ReplayID, owner string) (err error) {
	defer annotate(&err, "releasing replay %d", id)
	return a.writeMany(ctx, func(tx *tx) error {
		var state ReplayState
		err := tx.Row(`UPDATE {replay} SET lease = 0 WHERE id = $1 AND owner = $2 RETURNING state`, int64(id), owner).Scan(&state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil || state != ReplayCancelling:
			return err
		}
		return tx.ended(id, ReplayCancelled)
	})
}
