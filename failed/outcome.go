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

	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// Outcome is what is known of a message after a replay has sent it.
type Outcome string

// The outcomes of a message. It has none before it is sent.
const (
	OutcomePending     Outcome = "pending"      // no report yet
	OutcomeRetrying    Outcome = "retrying"     // its first attempt failed, and another one follows
	OutcomeSettled     Outcome = "settled"      // no report, but its queues were found empty: it was handled, or dropped
	OutcomeSucceeded   Outcome = "succeeded"    // its handler returned nil
	OutcomeFailedAgain Outcome = "failed again" // it is in the archive once more; replaces any other outcome
	OutcomeUnknown     Outcome = "unknown"      // no report was asked for, or there was none within VerifyTime
)

// VerifyTime is how long after its end a replay waits for outcomes.
const VerifyTime = 24 * time.Hour

// Outcomes are all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomePending, OutcomeRetrying, OutcomeSettled, OutcomeSucceeded, OutcomeFailedAgain, OutcomeUnknown}
}

// Codes of outcomes in {item}.outcome.
const (
	codeUnknown = iota // also of a message that was not sent
	codePending
	codeRetrying
	codeSucceeded
	codeFailedAgain
	codeSettled
)

// ranks are by code: an outcome replaces those of lower rank.
var ranks = []int{codeUnknown: 0, codePending: 1, codeRetrying: 2, codeSettled: 3, codeSucceeded: 4, codeFailedAgain: 5}

// codedOutcomes are the outcomes by their codes.
var codedOutcomes = []Outcome{OutcomeUnknown, OutcomePending, OutcomeRetrying, OutcomeSucceeded, OutcomeFailedAgain, OutcomeSettled}

// counterOf is the column of {replay} that counts an outcome. The others that were sent are unknown.
var counterOf = []string{codePending: "pending", codeRetrying: "retrying", codeSucceeded: "succeeded", codeFailedAgain: "back", codeSettled: "settled"}

// unasked is why a message was sent without a request for a report, in {item}.unasked.
type unasked int

const (
	asked       unasked = iota // or the message was sent by a version without requests
	noQueue                    // the queue for outcomes could not be declared
	noRoom                     // the headers fill the frame
	noSingle                   // see way.Queue
	lateOutcome                // asked, and there was no report within VerifyTime
)

// unknownReasons are why an outcome is unknown.
var unknownReasons = map[unasked]string{
	asked:       "the replay did not ask for reports",
	noQueue:     "no report was asked for: the queue for outcomes could not be declared",
	noRoom:      "no report was asked for: the headers leave no room for the request",
	noSingle:    "no report was asked for: the target is not known to lead to exactly one queue",
	lateOutcome: fmt.Sprintf("no report of the end within %.0f hours after the replay", VerifyTime.Hours()),
}

// overdue returns the time up to which a replay has ended of which no outcomes are waited for any more.
func overdue(now time.Time) int64 { return sqlkit.Millis(now.Add(-VerifyTime)) }

// outcomeColumn is the outcome of message m in a replay, as a number for outcomeFrom.
func (a *Archive) outcomeColumn(replay string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN i.outcome = %d THEN -i.unasked WHEN i.outcome < %d AND r.ended > 0 AND r.ended <= %d THEN %d ELSE i.outcome END
		FROM {item} i JOIN {replay} r ON r.id = i.replay WHERE i.replay = %s AND i.message = m.id AND i.sent = 1)`,
		codeUnknown, codeSucceeded, overdue(a.now()), -lateOutcome, replay)
}

// outcomeFrom returns what outcomeColumn says, and why it is unknown.
func outcomeFrom(n sql.NullInt64) (o Outcome, unknown string) {
	switch {
	case !n.Valid:
		return "", ""
	case n.Int64 > codeUnknown:
		return codedOutcomes[n.Int64], ""
	}
	return OutcomeUnknown, unknownReasons[unasked(-n.Int64)]
}

// Pending returns how many messages have no outcome yet, and may still get one.
func (r *Replay) Pending() int64 {
	return max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-r.Unknown)
}

// verify fills in what depends on the time, and on how many messages are pending.
func (r *Replay) verify(pending int64, now time.Time) {
	if !r.Ended.IsZero() && sqlkit.Millis(r.Ended) <= overdue(now) {
		pending, r.Retrying = 0, 0
	}
	r.Unknown = max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-pending)
	r.Verifying = r.State == ReplayDone && pending+r.Retrying > 0
}

// askOutcomes returns the secret of a replay, from which the keys of its requests are made.
func (a *Archive) askOutcomes(ctx context.Context, id ReplayID) (secret string, err error) {
	defer annotate(&err, "asking for the outcomes of replay %d", id)
	err = a.write(ctx, func(tx *tx) error {
		return tx.Row(`UPDATE {replay} SET secret = CASE WHEN secret = '' THEN $2 ELSE secret END WHERE id = $1 RETURNING secret`,
			int64(id), rand.Text()).Scan(&secret)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = &NotFoundError{"replay", int64(id)}
	}
	return secret, err
}

// outcomeKey proves that a report is about a message, and from a consumer of the queue that the message was sent to. The key of
// one message says nothing about another: it is in the headers that people see.
func outcomeKey(secret string, id ReplayID, message ID, queue string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%d/%d %s", id, message, queue)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// isOutcomeKey compares in constant time. A key is whatever a publisher has written, so it never gets into a query.
func isOutcomeKey(key, secret string, id ReplayID, message ID, queue string) bool {
	return secret != "" && hmac.Equal([]byte(key), []byte(outcomeKey(secret, id, message, queue)))
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
	s, err := t.sentItem(replayOf(o.Replay))
	if err != nil || s == nil || !isOutcomeKey(o.Key, s.secret, s.replay, s.message, o.Queue) {
		return err
	}
	code := codeSucceeded
	if o.Result == topology.OutcomeRetrying {
		code = codeRetrying
		text := strings.ToValidUTF8(cut(o.Error, maxErrorShown), "")
		if _, err := t.Exec(`UPDATE {replay} SET retried = COALESCE(retried, $2) WHERE id = $1`, int64(s.replay), append([]byte{}, text...)); err != nil {
			return err
		}
	}
	if err := t.prove(s, code); err != nil {
		return err
	}
	_, err = t.Exec(`INSERT INTO {reporting} (queue) VALUES ($1) ON CONFLICT (queue) DO NOTHING`, []byte(o.Queue))
	return err
}

// sentItem is a message that a replay has sent, or is about to send.
type sentItem struct {
	replay  ReplayID
	message ID
	secret  string
	noted   bool // as sent
	code    int  // of the outcome
}

// sentItem returns nil if the replay does not have the message, or could not send it.
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

// prove notes an outcome that a key proves. It proves as well that the message was sent: a process that has died in between, or
// that is slower than the worker, has not noted that.
func (t *tx) prove(s *sentItem, code int) error {
	if !s.noted {
		if err := t.markSent(s.replay, []ID{s.message}, asked); err != nil {
			return err
		}
		s.noted, s.code = true, max(s.code, codePending)
	}
	return t.noteOutcome(s, code)
}

// noteOutcome notes the outcome of a message, unless more is known of it.
func (t *tx) noteOutcome(s *sentItem, code int) error {
	if ranks[s.code] >= ranks[code] {
		return nil
	}
	if _, err := t.Exec(`UPDATE {item} SET outcome = $3 WHERE replay = $1 AND message = $2`, int64(s.replay), int64(s.message), code); err != nil {
		return err
	}
	if !s.noted { // markSent counts it
		return nil
	}
	counters := fmt.Sprintf(`%s = %[1]s + 1`, counterOf[code])
	if s.code != codeUnknown {
		counters += fmt.Sprintf(`, %s = %[1]s - 1`, counterOf[s.code])
	}
	_, err := t.Exec(`UPDATE {replay} SET `+counters+` WHERE id = $1`, int64(s.replay))
	return err
}

// failedAgain notes that an arrival is a message that a replay has sent. It reports false if that is not so: anybody can write
// topology.HeaderReplay, and a handler that copies the headers of its message onto a new one copies it, too. So a message with the
// request must be the one that the request is about, and one without must have the message id that was sent.
func (t *tx) failedAgain(e *arrival) (known bool, err error) {
	m := &e.m
	s, err := t.sentItem(m.Back, m.BackOf)
	if err != nil || s == nil {
		return false, err
	}
	if r := e.request; r != nil {
		inQueue := r.Queue == m.Queue || m.Queue == m.FailedQueue // nothing says in which queue it failed
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

// sentID returns the message id with which a replay sends a message; "" if the archive does not have it any more.
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

// retried reports whether the first attempt of a message of a replay has failed, and with which error.
func (a *Archive) retried(ctx context.Context, id ReplayID) (text string, yes bool, err error) {
	defer annotate(&err, "reading whether messages of replay %d are retried", id)
	var found sql.NullString
	err = a.db.Row(ctx, `SELECT retried FROM {replay} WHERE id = $1`, int64(id)).Scan(&found)
	return found.String, found.Valid, err
}

// hasReported reports whether a worker of this queue has ever reported an outcome.
func (a *Archive) hasReported(ctx context.Context, queue string) (yes bool, err error) {
	defer annotate(&err, "reading whether the workers of %s report outcomes", queue)
	var n int
	err = a.db.Row(ctx, `SELECT count(*) FROM {reporting} WHERE queue = $1`, []byte(queue)).Scan(&n)
	return n > 0, err
}
