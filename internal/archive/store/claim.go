package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// longestLease is the longest time by which a lease may exceed a lease of the claiming process. A process whose clock was
// wrong may have left a later end, which would otherwise stop the archive until that time.
//
// Processes may have leases of different durations, so the limit is at least an hour.
func longestLease(lease time.Duration) time.Duration { return max(10*lease, time.Hour) }

// ClaimReplay gives owner the lease of a replay, or extends the lease that owner already has. It reports false if
// another owner has the lease, or if the state of the replay is final. Config.Clock determines when a lease expires, so
// the clocks of machines that share a database should differ by at most about a second.
func (a *Archive) ClaimReplay(ctx context.Context, id failed.ReplayID, owner string, lease time.Duration) (mine bool, err error) {
	defer failed.Annotate(&err, "cannot claim replay %d", id)
	now := a.Now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`UPDATE {replay} SET owner = $2, lease = $3 WHERE id = $1 AND ended = 0 AND (owner = $2 OR lease <= $4 OR lease > $5)`,
			int64(id), owner, sqlkit.Millis(now.Add(lease)), sqlkit.Millis(now), sqlkit.Millis(now.Add(longestLease(lease))))
		return err
	})
	return n == 1 && err == nil, err
}

// ReleaseReplay ends the lease that owner has on a replay. It does nothing if owner does not have the lease. If the
// replay is in state ReplayCancelling, ReleaseReplay also ends the replay.
func (a *Archive) ReleaseReplay(ctx context.Context, id failed.ReplayID, owner string) (err error) {
	defer failed.Annotate(&err, "cannot release replay %d", id)
	return a.writeMany(ctx, func(tx *tx) error {
		var state failed.ReplayState
		err := tx.Row(`UPDATE {replay} SET lease = 0 WHERE id = $1 AND owner = $2 RETURNING state`, int64(id), owner).Scan(&state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil || state != failed.ReplayCancelling:
			return err
		}
		return tx.ended(id, failed.ReplayCancelled)
	})
}

// ClaimQueue gives owner the lease of a failed queue, or extends it, so that only owner archives the messages of the
// queue. It reports false if another owner has the lease. Config.Clock determines when a lease expires.
// A lease that exceeds longestLease is from a wrong clock, and does not count.
//
// The lease is in the archive because quorum queues in RabbitMQ do not support exclusive consumers. After another owner
// has taken the lease, ingest refuses the messages of the former owner. The former owner requeues them, and the new
// owner receives them.
func (a *Archive) ClaimQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	defer failed.Annotate(&err, "cannot claim queue %q", queue)
	now := a.Now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`INSERT INTO {ingest} (queue, owner, lease) VALUES ($1, $2, $3)
			ON CONFLICT (queue) DO UPDATE SET owner = excluded.owner, lease = excluded.lease WHERE {ingest}.owner = excluded.owner OR {ingest}.lease <= $4 OR {ingest}.lease > $5`,
			[]byte(queue), owner, sqlkit.Millis(now.Add(lease)), sqlkit.Millis(now), sqlkit.Millis(now.Add(longestLease(lease))))
		return err
	})
	return n == 1 && err == nil, err
}

// RenewQueue extends the lease of a queue. It reports false if another owner has held the lease in the meantime, even
// if that lease expired, because that other owner may have archived and settled messages that the broker delivered to
// owner earlier.
func (a *Archive) RenewQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	defer failed.Annotate(&err, "cannot renew the lease of queue %q", queue)
	now := a.Now()
	var n int64
	err = a.write(ctx, func(tx *tx) (err error) {
		n, err = tx.Exec(`UPDATE {ingest} SET lease = $3 WHERE queue = $1 AND owner = $2`,
			[]byte(queue), owner, sqlkit.Millis(now.Add(lease)))
		return err
	})
	return n == 1 && err == nil, err
}

// IngestedQueues returns the failed queues that have ever had a lease.
func (a *Archive) IngestedQueues(ctx context.Context) (queues []string, err error) {
	defer failed.Annotate(&err, "cannot list the archived queues")
	rows := a.db.Rows(ctx, `SELECT queue FROM {ingest} ORDER BY queue`)
	var queue string
	for err := range rows.Scan(sqlkit.Text(&queue)) {
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	return queues, nil
}

// actStop is the verb of StopQueue.
const actStop = "stop archiving"

// StopQueue records in the audit log that an archive no longer takes messages from a queue by itself.
func (a *Archive) StopQueue(ctx context.Context, queue, why string, who failed.Actor) error {
	return a.Record(ctx, who, actStop, "", map[string]any{"queue": params.Text(queue), "reason": why})
}

// StoppedQueues returns the queues of all calls to StopQueue and their reasons.
func (a *Archive) StoppedQueues(ctx context.Context) (why map[string]string, err error) {
	defer failed.Annotate(&err, "cannot list the queues that are no longer archived")
	why = map[string]string{}
	rows := a.db.Rows(ctx, `SELECT details FROM {act} WHERE verb = $1`, actStop)
	var d struct {
		Queue  params.Text `json:"queue"`
		Reason string      `json:"reason"`
	}
	for err := range rows.Scan(sqlkit.JSON(&d)) {
		if err != nil {
			return nil, err
		}
		why[string(d.Queue)] = d.Reason
	}
	return why, nil
}

// ReleaseQueue ends the lease that owner has on a queue. It does nothing if another owner has the lease.
func (a *Archive) ReleaseQueue(ctx context.Context, queue, owner string) (err error) {
	defer failed.Annotate(&err, "cannot release queue %q", queue)
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`UPDATE {ingest} SET lease = 0 WHERE queue = $1 AND owner = $2`, []byte(queue), owner)
		return err
	})
}

// owned returns ErrState if an arrival names an owner that is not the last one to claim the failed queue.
func (t *tx) owned(arrivals []failed.Arrived) error {
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
			return fmt.Errorf("%w: another process archives queue %s", failed.ErrState, brief.Quoted(a.FailedQueue))
		}
	}
	return nil
}

// submissionsKept is the time after which a key can be claimed again.
const submissionsKept = 30 * 24 * time.Hour

// ClaimSubmission reserves a key for the caller, so that a form or request that is submitted twice takes effect only
// once. It returns ErrState if the key was claimed before, by this or another process with the same archive. Call
// ClaimSubmission immediately before the action, and do not act if it returns an error. The key is a random string of
// at most 100 bytes that the form or request contains.
//
// The archive removes a key after 30 days. If the action fails, the key stays claimed, because the caller cannot always
// know whether the action had an effect.
func (a *Archive) ClaimSubmission(ctx context.Context, key string) (err error) {
	defer failed.Annotate(&err, "cannot claim a submission")
	if key == "" || len(key) > 100 {
		return failed.Invalid("key must have 1 to 100 bytes: got %d", len(key))
	}
	return a.write(ctx, func(t *tx) error {
		now := t.Now()
		if _, err := t.Exec(`DELETE FROM {submission} WHERE at < $1`, sqlkit.Millis(now.Add(-submissionsKept))); err != nil {
			return err
		}
		n, err := t.Exec(`INSERT INTO {submission} (name, at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, []byte(key), sqlkit.Millis(now))
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: key is already claimed", failed.ErrState)
		}
		return err
	})
}
