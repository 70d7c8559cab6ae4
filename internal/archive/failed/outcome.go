package failed

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// Outcome is the result of a message after a replay has sent it.
type Outcome string

// The outcomes of a message. Before a replay sends the message, its outcome is "".
const (
	OutcomePending     Outcome = "pending"      // no report yet
	OutcomeRetrying    Outcome = "retrying"     // the first attempt failed, and a retry follows
	OutcomeSettled     Outcome = "settled"      // no report, but its queues are empty: processed or dropped
	OutcomeSucceeded   Outcome = "succeeded"    // the handler returned nil
	OutcomeFailedAgain Outcome = "failed again" // in the archive again; replaces any other outcome
	OutcomeUnknown     Outcome = "unknown"      // no report requested, or none within VerifyTime
)

// VerifyTime specifies how long the archive waits for outcomes after a replay ends.
const VerifyTime = 24 * time.Hour

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomePending, OutcomeRetrying, OutcomeSettled, OutcomeSucceeded, OutcomeFailedAgain, OutcomeUnknown}
}

// Codes of outcomes in {item}.outcome.
const (
	codeUnknown = iota // also for unsent messages
	codePending
	codeRetrying
	codeSucceeded
	codeFailedAgain
	codeSettled
)

// ranks contains the ranks of outcomes by code. An outcome replaces outcomes with a lower rank.
var ranks = []int{codeUnknown: 0, codePending: 1, codeRetrying: 2, codeSettled: 3, codeSucceeded: 4, codeFailedAgain: 5}

// codedOutcomes contains the outcomes by code.
var codedOutcomes = []Outcome{OutcomeUnknown, OutcomePending, OutcomeRetrying, OutcomeSucceeded, OutcomeFailedAgain, OutcomeSettled}

// counterOf contains, by code, the column of {replay} that counts an outcome. Sent messages that no column counts have
// OutcomeUnknown.
var counterOf = []string{codePending: "pending", codeRetrying: "retrying", codeSucceeded: "succeeded", codeFailedAgain: "back", codeSettled: "settled"}

// unaskedReason is the reason why a sent message has no report, stored in {item}.unasked.
type unaskedReason int

const (
	asked       unaskedReason = iota // also for messages that an older version sent, without a request
	noQueue                          // the queue for outcomes could not be declared
	noRoom                           // the headers fill the frame
	noSingle                         // see route.Queue
	lateOutcome                      // a report was requested, but did not arrive within VerifyTime
)

// unknownReasons contains the values of Message.WhyUnknown.
var unknownReasons = map[unaskedReason]string{
	asked:       "the replay did not request reports",
	noQueue:     "no report requested: cannot declare the queue for outcomes",
	noRoom:      "no report requested: the headers leave no room for the request",
	noSingle:    "no report requested: the target is not known to route to exactly one queue",
	lateOutcome: fmt.Sprintf("no report within %.0f hours after the end of the replay", VerifyTime.Hours()),
}

// overdue returns the time VerifyTime before now, in milliseconds. The archive no longer waits for the outcomes of
// replays that ended at or before this time.
func overdue(now time.Time) int64 { return sqlkit.Millis(now.Add(-VerifyTime)) }

// outcomeColumn returns the SQL expression for the outcome of message m in a replay, as a number for outcomeFrom.
func (a *Archive) outcomeColumn(replay string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN i.outcome = %d THEN -i.unasked WHEN i.outcome < %d AND r.ended > 0 AND r.ended <= %d THEN %d ELSE i.outcome END
		FROM {item} i JOIN {replay} r ON r.id = i.replay WHERE i.replay = %s AND i.message = m.id AND i.sent = 1)`,
		codeUnknown, codeSucceeded, overdue(a.now()), -lateOutcome, replay)
}

// outcomeFrom decodes the value of outcomeColumn. For OutcomeUnknown it also returns the reason.
func outcomeFrom(n sql.NullInt64) (o Outcome, unknown string) {
	switch {
	case !n.Valid:
		return "", ""
	case n.Int64 > codeUnknown:
		return codedOutcomes[n.Int64], ""
	}
	return OutcomeUnknown, unknownReasons[unaskedReason(-n.Int64)]
}

// Pending returns the number of messages with OutcomePending.
func (r *Replay) Pending() int64 {
	return max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-r.Unknown)
}

// verify sets Retrying, Unknown and Verifying, which depend on the current time and on the number of pending messages.
func (r *Replay) verify(pending int64, now time.Time) {
	if !r.Ended.IsZero() && sqlkit.Millis(r.Ended) <= overdue(now) {
		pending, r.Retrying = 0, 0
	}
	r.Unknown = max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-pending)
	r.Verifying = r.State == ReplayDone && pending+r.Retrying > 0
}

// askOutcomes returns the secret of a replay, from which the keys of its requests are derived. The first call creates
// the secret.
func (a *Archive) askOutcomes(ctx context.Context, id ReplayID) (secret string, err error) {
	defer annotate(&err, "cannot request outcomes of replay %d", id)
	err = a.write(ctx, func(tx *tx) error {
		return tx.Row(`UPDATE {replay} SET secret = CASE WHEN secret = '' THEN $2 ELSE secret END WHERE id = $1 RETURNING secret`,
			int64(id), rand.Text()).Scan(&secret)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = &NotFoundError{"replay", int64(id)}
	}
	return secret, err
}

// outcomeKey returns the key of a request. The key proves that a report concerns this message, and that its author
// consumes the queue that received the message. Keys are visible in headers, so the key of one message must not reveal
// the key of another.
func outcomeKey(secret string, id ReplayID, message ID, queue string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%d/%d %s", id, message, queue)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// isOutcomeKey reports whether a key is valid, in constant time. Publishers can write any key, so the archive never
// uses a received key in a query.
func isOutcomeKey(key, secret string, id ReplayID, message ID, queue string) bool {
	return secret != "" && hmac.Equal([]byte(key), []byte(outcomeKey(secret, id, message, queue)))
}

// outcomeQueue returns the name of the queue to which workers report.
func (a *Archive) outcomeQueue() string { return protocol.OutcomeQueuePrefix + a.origin }

// outcomeTopology returns the declaration of the queue for outcomes. The broker deletes the queue if it is unused for
// 30 days, because the archive then probably no longer exists.
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

// noteOutcomes records reports. It ignores reports without a matching request, and reports that do not have a higher
// rank than the recorded outcome.
func (a *Archive) noteOutcomes(ctx context.Context, reports []protocol.Outcome) (err error) {
	defer annotate(&err, "cannot record %d outcomes", len(reports))
	return a.write(ctx, func(tx *tx) error {
		for _, o := range reports {
			if err := tx.noteReport(o); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) noteReport(o protocol.Outcome) error {
	s, err := t.sentItem(replayOf(o.Replay))
	if err != nil || s == nil || !isOutcomeKey(o.Key, s.secret, s.replay, s.message, o.Queue) {
		return err
	}
	code := codeSucceeded
	if o.Result == protocol.OutcomeRetrying {
		code = codeRetrying
		text := strings.ToValidUTF8(cut(o.Error, maxErrorShown), "")
		if _, err := t.Exec(`UPDATE {replay} SET retried = COALESCE(retried, $2) WHERE id = $1`, int64(s.replay), append([]byte{}, text...)); err != nil {
			return err
		}
	}
	return t.prove(s, code)
}

// sentItem is a message that a replay has sent or is about to send.
type sentItem struct {
	replay  ReplayID
	message ID
	secret  string
	noted   bool // recorded as sent
	code    int  // code of the outcome
}

// sentItem returns a message of a replay, or nil if the message does not belong to the replay, or was refused.
func (t *tx) sentItem(id ReplayID, message ID) (*sentItem, error) {
	s := &sentItem{replay: id, message: message}
	var sent int
	err := t.Row(`SELECT r.secret, i.sent, i.outcome FROM {item} i JOIN {replay} r ON r.id = i.replay
		WHERE i.replay = $1 AND i.message = $2 AND i.sent <> 2`, int64(id), int64(message)).Scan(&s.secret, &sent, &s.code)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	s.noted = sent == 1
	return s, err
}

// prove records an outcome that a valid key proves. The key also proves that the message was sent. The Replayer may not
// have recorded the send yet, because its process was killed or is slower than the worker.
func (t *tx) prove(s *sentItem, code int) error {
	if !s.noted {
		if err := t.markSent(s.replay, []ID{s.message}, asked); err != nil {
			return err
		}
		s.noted, s.code = true, max(s.code, codePending)
	}
	return t.noteOutcome(s, code)
}

// noteOutcome records the outcome of a message, unless the recorded outcome has the same rank or a higher rank.
func (t *tx) noteOutcome(s *sentItem, code int) error {
	if ranks[s.code] >= ranks[code] {
		return nil
	}
	if _, err := t.Exec(`UPDATE {item} SET outcome = $3 WHERE replay = $1 AND message = $2`, int64(s.replay), int64(s.message), code); err != nil {
		return err
	}
	if !s.noted { // markSent will count the outcome
		return nil
	}
	counters := fmt.Sprintf(`%s = %[1]s + 1`, counterOf[code])
	if s.code != codeUnknown {
		counters += fmt.Sprintf(`, %s = %[1]s - 1`, counterOf[s.code])
	}
	_, err := t.Exec(`UPDATE {replay} SET `+counters+` WHERE id = $1`, int64(s.replay))
	return err
}

// failedAgain records that arrival e is a message that a replay has sent and that failed again. It returns false if it
// cannot verify that the replay sent the message. The header topology.HeaderReplay is not sufficient, because any
// publisher can write it, and a handler can copy the headers of its message to a new message. If the arrival contains a
// request, the queue, the message id and the key of the request must match. Otherwise the arrival must have the message
// id with which the replay sent the message.
func (t *tx) failedAgain(e *arrival) (known bool, err error) {
	m := &e.m
	s, err := t.sentItem(m.Back, m.BackOf)
	if err != nil || s == nil {
		return false, err
	}
	if r := e.request; r != nil {
		inQueue := r.Queue == m.Queue || m.Queue == m.FailedQueue // if the work queue is unknown, m.Queue is the failed queue
		if !inQueue || r.MessageID != m.Properties.MessageID || !isOutcomeKey(r.Key, s.secret, s.replay, s.message, r.Queue) {
			return false, nil
		}
		return true, t.prove(s, codeFailedAgain)
	}
	sent, err := t.sentID(s.message)
	if err != nil || sent == "" || sent != m.Properties.MessageID {
		return false, err
	}
	return true, t.noteOutcome(s, codeFailedAgain)
}

// sentID returns the message id with which a replay sends a message, or "" if the archive no longer has the message.
func (t *tx) sentID(id ID) (string, error) {
	m := Message{ID: id}
	var edited sql.NullString
	err := t.Row(`SELECT m.message_id, m.archived, r.properties FROM {message} m
		LEFT JOIN {revision} r ON r.message = m.id AND r.number = m.edited WHERE m.id = $1`, int64(id)).
		Scan(&m.Properties.MessageID, sqlkit.Time(&m.Archived), &edited)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case edited.Valid:
		properties, err := decodeTable(edited.String)
		if err != nil {
			return "", err
		}
		m.Properties = propertiesOf(properties)
	}
	return m.sentID(), nil
}

// retried reports whether the first attempt of any message of a replay has failed, and returns the error that was
// reported first.
func (a *Archive) retried(ctx context.Context, id ReplayID) (text string, yes bool, err error) {
	defer annotate(&err, "cannot read the retries of replay %d", id)
	var found sql.NullString
	err = a.db.Row(ctx, `SELECT retried FROM {replay} WHERE id = $1`, int64(id)).Scan(&found)
	return found.String, found.Valid, err
}
