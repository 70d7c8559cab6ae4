package failed

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// Outcome is what is known of a message after a replay has sent it.
type Outcome string

// The outcomes of a message. It has none before it is sent.
const (
	OutcomePending     Outcome = "pending"      // no report yet
	OutcomeRetrying    Outcome = "retrying"     // its first attempt failed, and another one follows
	OutcomeSucceeded   Outcome = "succeeded"    // its handler returned nil
	OutcomeFailedAgain Outcome = "failed again" // it is in the archive once more; counts more than any other outcome
	OutcomeUnknown     Outcome = "unknown"      // nobody was asked to report, or nobody did within VerifyTime
)

// VerifyTime is how long after its end a replay waits for outcomes.
const VerifyTime = 24 * time.Hour

// Codes of outcomes in {item}.outcome. A higher one replaces a lower one. Unknown is pending for too long.
var outcomeCodes = map[Outcome]int{
	OutcomePending: 0, OutcomeRetrying: 1, OutcomeSucceeded: 2, OutcomeFailedAgain: 3,
}

// counterOf is the column of {replay} that counts an outcome.
var counterOf = map[int]string{1: "retrying", 2: "succeeded", 3: "back"}

// outcomeColumn is the outcome of message m in a replay, as a number for outcomeFrom.
func (a *Archive) outcomeColumn(replay string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN i.outcome = 0 AND (r.secret = '' OR r.ended > 0 AND r.ended <= %d) THEN -1 ELSE i.outcome END
		FROM {item} i JOIN {replay} r ON r.id = i.replay WHERE i.replay = %s AND i.message = m.id AND i.sent = 1)`,
		sqlkit.Millis(a.now().Add(-VerifyTime)), replay)
}

// outcomeFrom returns what outcomeColumn says.
func outcomeFrom(n sql.NullInt64) Outcome {
	if !n.Valid {
		return ""
	}
	for outcome, code := range outcomeCodes {
		if code == int(n.Int64) {
			return outcome
		}
	}
	return OutcomeUnknown
}

// Outcomes are all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomePending, OutcomeRetrying, OutcomeSucceeded, OutcomeFailedAgain, OutcomeUnknown}
}

// Pending returns how many messages have no outcome yet, and may still get one.
func (r *Replay) Pending() int64 { return r.open() - r.Unknown }

// open returns how many messages were sent and have no outcome.
func (r *Replay) open() int64 {
	return max(0, r.Sent-r.Back-r.Succeeded-r.Retrying)
}

// verify fills in what depends on the time: which messages are unknown, and whether a replay that has sent everything waits for
// outcomes.
func (r *Replay) verify(now time.Time, asked bool) {
	switch {
	case !asked, !r.Ended.IsZero() && now.Sub(r.Ended) >= VerifyTime:
		r.Unknown = r.open()
	case r.State == ReplayDone && r.open()+r.Retrying > 0:
		r.State = ReplayVerifying
	}
}

// askOutcomes returns the request that all messages of a replay carry, without the parts that differ.
func (a *Archive) askOutcomes(ctx context.Context, id ReplayID) (request topology.OutcomeRequest, err error) {
	defer annotate(&err, "asking for the outcomes of replay %d", id)
	request.To = a.outcomeQueue()
	err = a.write(ctx, func(tx *tx) error {
		return tx.Row(`UPDATE {replay} SET secret = CASE WHEN secret = '' THEN $2 ELSE secret END WHERE id = $1 RETURNING secret`,
			int64(id), rand.Text()).Scan(&request.Key)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = &NotFoundError{"replay", int64(id)}
	}
	return request, err
}

// outcomeQueue is the queue that workers report to.
func (a *Archive) outcomeQueue() string { return topology.OutcomeQueuePrefix + a.origin }

// outcomeTopology declares it. The broker deletes a queue of which nothing was read for a month, since the archive is gone then.
func (a *Archive) outcomeTopology() topology.Topology {
	return topology.Topology{Queues: []topology.Queue{{
		Name: a.outcomeQueue(),
		Args: topology.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(math.MaxInt32),
			"x-expires":        int64(30 * 24 * time.Hour / time.Millisecond),
		},
	}}}
}

// noteOutcomes notes reports. It ignores those that answer no request, and those that say less than is known.
func (a *Archive) noteOutcomes(ctx context.Context, reports []topology.Outcome) (err error) {
	defer annotate(&err, "noting %d outcomes", len(reports))
	return a.write(ctx, func(tx *tx) error {
		for _, o := range reports {
			if err := tx.noteReport(o); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) noteReport(o topology.Outcome) error {
	replay, message := replayOf(o.Replay)
	if replay == 0 || o.Key == "" {
		return nil
	}
	code := outcomeCodes[OutcomeSucceeded]
	if o.Result == topology.OutcomeRetrying {
		code = outcomeCodes[OutcomeRetrying]
	}
	known, err := t.noteOutcome(replay, message, code, o.Key, o.Error)
	if err != nil || !known {
		return err
	}
	_, err = t.Exec(`UPDATE {queue} SET reports = 1 WHERE reports = 0 AND id = (SELECT queue FROM {message} WHERE id = $1)`, int64(message))
	return err
}

// noteOutcome notes the outcome of a message, unless more is known of it. It reports whether the replay has the message, and the
// key if it is not "".
func (t *tx) noteOutcome(id ReplayID, message ID, code int, key, text string) (known bool, err error) {
	var was int
	err = t.Row(`SELECT i.outcome FROM {item} i JOIN {replay} r ON r.id = i.replay
		WHERE i.replay = $1 AND i.message = $2 AND i.sent <> 2 AND ($3 = '' OR r.secret = $3)`, int64(id), int64(message), key).Scan(&was)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case was >= code:
		return true, nil
	}
	if _, err := t.Exec(`UPDATE {item} SET outcome = $3, reported = $4, told = $5 WHERE replay = $1 AND message = $2`,
		int64(id), int64(message), code, sqlkit.Millis(t.now()), orNull(text)); err != nil {
		return true, err
	}
	counters := fmt.Sprintf(`%s = %[1]s + 1`, counterOf[code])
	if was > 0 {
		counters += fmt.Sprintf(`, %s = %[1]s - 1`, counterOf[was])
	}
	_, err = t.Exec(`UPDATE {replay} SET `+counters+` WHERE id = $1`, int64(id))
	return true, err
}

// retryingError returns the error of a message of a replay that is being retried.
func (a *Archive) retryingError(ctx context.Context, id ReplayID) (text string, err error) {
	defer annotate(&err, "reading why messages of replay %d are retried", id)
	err = a.db.Row(ctx, `SELECT told FROM {item} WHERE replay = $1 AND outcome = $2 ORDER BY pos LIMIT 1`,
		int64(id), outcomeCodes[OutcomeRetrying]).Scan(sqlkit.Text(&text))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return text, err
}

// reports reports whether the outcome of a message of this queue was ever reported.
func (a *Archive) reports(ctx context.Context, queue string) (yes bool, err error) {
	defer annotate(&err, "reading whether the workers of %s report outcomes", queue)
	var n int
	err = a.db.Row(ctx, `SELECT reports FROM {queue} WHERE name = $1`, []byte(queue)).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n > 0, err
}
