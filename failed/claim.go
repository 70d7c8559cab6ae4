package failed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// claimReplay makes an owner the one that carries out a running replay, for as long as the
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

// releaseReplay ends the claim of an owner, if it has it, and with it a replay that is
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

// claimQueue makes an owner the one that empties a failed queue into this archive, for
// as long as the lease. It reports false if another owner has the queue. The time is as
// with claimReplay.
//
// The archive decides, because RabbitMQ's quorum queues have no exclusive consumers. When
// another owner has taken the queue, the transaction that would add a message for the
// former owner is refused: that process gives the message back, and the new owner gets it.
func (a *Archive) claimQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	defer annotate(&err, "claiming the queue %q", queue)
	now := a.now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`INSERT INTO {ingest} (queue, owner, lease) VALUES ($1, $2, $3)
			ON CONFLICT (queue) DO UPDATE SET owner = excluded.owner, lease = excluded.lease WHERE {ingest}.owner = excluded.owner OR {ingest}.lease <= $4`,
			[]byte(queue), owner, sqlkit.Millis(now.Add(lease)), sqlkit.Millis(now))
		return err
	})
	return n == 1 && err == nil, err
}

// renewQueue has an owner keep a queue for another lease. It reports false if another owner
// has had the queue since, even one that has let go of it or was not heard of for its
// lease: what was delivered before that may be in the archive, and settled.
func (a *Archive) renewQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	defer annotate(&err, "claiming the queue %q", queue)
	now := a.now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`UPDATE {ingest} SET lease = $3 WHERE queue = $1 AND owner = $2`,
			[]byte(queue), owner, sqlkit.Millis(now.Add(lease)))
		return err
	})
	return n == 1 && err == nil, err
}

// releaseQueue ends the claim of an owner, if it has it.
func (a *Archive) releaseQueue(ctx context.Context, queue, owner string) (err error) {
	defer annotate(&err, "releasing the queue %q", queue)
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`UPDATE {ingest} SET lease = 0 WHERE queue = $1 AND owner = $2`, []byte(queue), owner)
		return err
	})
}

// owned refuses arrivals of a queue that has become another's: that one has them now.
func (t *tx) owned(arrivals []delivered) error {
	checked := make(map[[2]string]bool)
	for _, a := range arrivals {
		claim := [2]string{a.FailedQueue, a.Owner}
		if a.Owner == "" || checked[claim] {
			continue
		}
		checked[claim] = true
		var owner string
		err := t.Row(`SELECT owner FROM {ingest} WHERE queue = $1`, []byte(a.FailedQueue)).Scan(&owner)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if owner != a.Owner {
			return fmt.Errorf("%w: another process empties the queue %q", ErrState, a.FailedQueue)
		}
	}
	return nil
}
