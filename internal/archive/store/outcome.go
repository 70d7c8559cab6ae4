package store

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

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

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
var codedOutcomes = []failed.Outcome{failed.OutcomeUnknown, failed.OutcomePending, failed.OutcomeRetrying, failed.OutcomeSucceeded, failed.OutcomeFailedAgain, failed.OutcomeSettled}

// counterOf contains, by code, the column of {replay} that counts an outcome. Sent messages that no column counts have
// OutcomeUnknown.
var counterOf = []string{codePending: "pending", codeRetrying: "retrying", codeSucceeded: "succeeded", codeFailedAgain: "back", codeSettled: "settled"}

// UnaskedReason is the reason why a sent message has no report, stored in {item}.unasked.
type UnaskedReason int

const (
	Asked       UnaskedReason = iota // also for messages that an older version sent, without a request
	NoQueue                          // the queue for outcomes could not be declared
	NoRoom                           // the headers fill the frame
	NoSingle                         // see route.Queue
	LateOutcome                      // a report was requested, but did not arrive within VerifyTime
	StringsOnly                      // the consumer fails on the request
)

// UnknownReasons contains the values of Message.WhyUnknown.
var UnknownReasons = map[UnaskedReason]string{
	Asked:       "the replay did not request reports",
	NoQueue:     "no report requested: cannot declare the queue for outcomes",
	NoRoom:      "no report requested: the headers leave no room for the request",
	NoSingle:    "no report requested: the target is not known to route to exactly one queue",
	StringsOnly: "no report requested: the consumer fails on headers that are not strings",
	LateOutcome: fmt.Sprintf("no report within %.0f hours after the end of the replay", failed.VerifyTime.Hours()),
}

// overdue returns the time VerifyTime before now, in milliseconds. The archive no longer waits for the outcomes of
// replays that ended at or before this time.
func overdue(now time.Time) int64 { return sqlkit.Millis(now.Add(-failed.VerifyTime)) }

// outcomeColumn returns the SQL expression for the outcome of message m in a replay, as a number for outcomeFrom.
func (a *Archive) outcomeColumn(replay string) string {
	return fmt.Sprintf(`(SELECT CASE WHEN i.outcome = %d THEN -i.unasked WHEN i.outcome < %d AND r.ended > 0 AND r.ended <= %d THEN %d ELSE i.outcome END
		FROM {item} i JOIN {replay} r ON r.id = i.replay WHERE i.replay = %s AND i.message = m.id AND i.sent = 1)`,
		codeUnknown, codeSucceeded, overdue(a.Now()), -LateOutcome, replay)
}

// outcomeFrom decodes the value of outcomeColumn. For OutcomeUnknown it also returns the reason.
func outcomeFrom(n sql.NullInt64) (o failed.Outcome, unknown string) {
	switch {
	case !n.Valid:
		return "", ""
	case n.Int64 > codeUnknown:
		return codedOutcomes[n.Int64], ""
	}
	return failed.OutcomeUnknown, UnknownReasons[UnaskedReason(-n.Int64)]
}

// verify sets Retrying, Unknown and Verifying, which depend on the current time and on the number of pending messages.
func verify(r *failed.Replay, pending int64, now time.Time) {
	if !r.Ended.IsZero() && sqlkit.Millis(r.Ended) <= overdue(now) {
		pending, r.Retrying = 0, 0
	}
	r.Unknown = max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-pending)
	r.Verifying = r.State == failed.ReplayDone && pending+r.Retrying > 0
}

// AskOutcomes returns the secret of a replay, from which the keys of its requests are derived. The first call creates
// the secret.
func (a *Archive) AskOutcomes(ctx context.Context, id failed.ReplayID) (secret string, err error) {
	defer failed.Annotate(&err, "cannot request outcomes of replay %d", id)
	err = a.write(ctx, func(tx *tx) error {
		return tx.Row(`UPDATE {replay} SET secret = CASE WHEN secret = '' THEN $2 ELSE secret END WHERE id = $1 RETURNING secret`,
			int64(id), rand.Text()).Scan(&secret)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = &failed.NotFoundError{What: "replay", ID: int64(id)}
	}
	return secret, err
}

// OutcomeKey returns the key of a request. The key proves that a report concerns this message, and that its author
// consumes the queue that received the message. Keys are visible in headers, so the key of one message must not reveal
// the key of another.
func OutcomeKey(secret string, id failed.ReplayID, message failed.ID, queue string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%d/%d %s", id, message, queue)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// isOutcomeKey reports whether a key is valid, in constant time. Publishers can write any key, so the archive never
// uses a received key in a query.
func isOutcomeKey(key, secret string, id failed.ReplayID, message failed.ID, queue string) bool {
	return secret != "" && hmac.Equal([]byte(key), []byte(OutcomeKey(secret, id, message, queue)))
}

// OutcomeQueue returns the name of the queue to which workers report.
func (a *Archive) OutcomeQueue() string { return protocol.OutcomeQueuePrefix + a.origin }

// OutcomeTopology returns the declaration of the queue for outcomes. The broker deletes the queue if it is unused for
// 30 days, because the archive then probably no longer exists.
func (a *Archive) OutcomeTopology() topology.Topology {
	return topology.Topology{Queues: []topology.Queue{{
		Name: a.OutcomeQueue(),
		Args: topology.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(math.MaxInt32),
			"x-expires":        int64(30 * 24 * time.Hour / time.Millisecond),
		},
	}}}
}

// NoteOutcomes records reports. It ignores reports without a matching request, and reports that do not have a higher
// rank than the recorded outcome.
func (a *Archive) NoteOutcomes(ctx context.Context, reports []protocol.Outcome) (err error) {
	defer failed.Annotate(&err, "cannot record %d outcomes", len(reports))
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
		text := strings.ToValidUTF8(failed.Cut(o.Error, maxErrorShown), "")
		if _, err := t.Exec(`UPDATE {replay} SET retried = COALESCE(retried, $2) WHERE id = $1`, int64(s.replay), append([]byte{}, text...)); err != nil {
			return err
		}
	}
	return t.prove(s, code)
}

// sentItem is a message that a replay has sent or is about to send.
type sentItem struct {
	replay  failed.ReplayID
	message failed.ID
	secret  string
	noted   bool // recorded as sent
	code    int  // code of the outcome
}

// sentItem returns a message of a replay, or nil if the message does not belong to the replay, or was refused.
func (t *tx) sentItem(id failed.ReplayID, message failed.ID) (*sentItem, error) {
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
		if err := t.markSent(s.replay, []failed.ID{s.message}, Asked, ""); err != nil {
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
// Publisher can write it, and a handler can copy the headers of its message to a new message. If the arrival contains a
// request, the queue, the message id and the key of the request must match. Otherwise the arrival must have the message
// id with which the replay sent the message.
func (t *tx) failedAgain(e *Arrival) (known bool, err error) {
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
	sent, err := t.sentMessageID(s.message)
	if err != nil || sent == "" || sent != m.Properties.MessageID {
		return false, err
	}
	return true, t.noteOutcome(s, codeFailedAgain)
}

// sentMessageID returns the message id with which a replay sends a message, or "" if the archive no longer has the message.
func (t *tx) sentMessageID(id failed.ID) (string, error) {
	m := failed.Message{ID: id}
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
		properties, err := failed.DecodeTable(edited.String)
		if err != nil {
			return "", err
		}
		m.Properties = failed.PropertiesOf(properties)
	}
	return m.SentID(), nil
}

// Retried reports whether the first attempt of any message of a replay has failed, and returns the error that was
// reported first.
func (a *Archive) Retried(ctx context.Context, id failed.ReplayID) (text string, yes bool, err error) {
	defer failed.Annotate(&err, "cannot read the retries of replay %d", id)
	var found sql.NullString
	err = a.db.Row(ctx, `SELECT retried FROM {replay} WHERE id = $1`, int64(id)).Scan(&found)
	return found.String, found.Valid, err
}

// RetriesTopology returns the topology of the queue to which workers report retries.
func (a *Archive) RetriesTopology() topology.Topology {
	t := protocol.Retries()
	name := protocol.RetriesQueuePrefix + a.origin
	t.Queues = []topology.Queue{{
		Name: name,
		Args: topology.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(math.MaxInt32),
			"x-max-length":     int64(1000),
			"x-expires":        int64(30 * 24 * time.Hour / time.Millisecond),
		},
	}}
	t.Bindings = []topology.Binding{{Exchange: protocol.RetriesExchange, Queue: name, RoutingKey: "#"}}
	return t
}

// SettleOutcomes records that the given work queues, their wait queues and their failed queues contained neither ready
// nor unacked messages at the given time. It changes the outcome of messages without a final report to OutcomeSettled,
// if a replay that had ended by then sent them to one of these work queues. It ignores replays with a Plan.To, replays
// that ended at least VerifyTime ago, and messages that may have reached several queues. A ledger calls SettleOutcomes.
func (a *Archive) SettleOutcomes(ctx context.Context, queues []string, at time.Time) (err error) {
	defer failed.Annotate(&err, "cannot settle outcomes")
	names := make([][]byte, len(queues))
	for i, q := range queues {
		names[i] = []byte(q)
	}
	replays, err := a.replays(ctx, `ended > $1 AND ended <= $2 AND sent > back + succeeded + settled`, overdue(a.Now()), sqlkit.Millis(at))
	if err != nil {
		return err
	}
	for _, r := range replays {
		if r.Plan.To != nil {
			continue
		}
		err := a.write(ctx, func(tx *tx) error {
			for _, name := range names {
				if err := tx.settle(r.ID, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// UnsettledQueues returns the queues to which replays have sent messages whose outcome SettleOutcomes could set.
func (a *Archive) UnsettledQueues(ctx context.Context) (queues []string, err error) {
	defer failed.Annotate(&err, "cannot list the queues of messages without an outcome")
	rows := a.db.Rows(ctx, fmt.Sprintf(`SELECT DISTINCT COALESCE(i.reached, q.name) FROM {replay} r JOIN {item} i ON i.replay = r.id AND i.sent = 1 AND i.outcome IN (%d, %d, %d) AND i.unasked <> %d
		JOIN {message} m ON m.id = i.message JOIN {queue} q ON q.id = m.queue WHERE r.ended > $1 AND r.sent > r.back + r.succeeded + r.settled`,
		codeUnknown, codePending, codeRetrying, NoSingle), overdue(a.Now()))
	var queue string
	for err := range rows.Scan(sqlkit.Text(&queue)) {
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	return queues, nil
}

func (t *tx) settle(id failed.ReplayID, queue []byte) error {
	for _, code := range []int{codeUnknown, codePending, codeRetrying} {
		n, err := t.Exec(fmt.Sprintf(`UPDATE {item} SET outcome = %d WHERE replay = $1 AND sent = 1 AND outcome = %d AND unasked <> %d
			AND (reached = $2 OR reached IS NULL AND message IN (SELECT m.id FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE q.name = $2))`, codeSettled, code, NoSingle), int64(id), queue)
		if err != nil {
			return err
		}
		counters := `settled = settled + $2`
		if code != codeUnknown {
			counters += fmt.Sprintf(`, %s = %[1]s - $2`, counterOf[code])
		}
		if _, err := t.Exec(`UPDATE {replay} SET `+counters+` WHERE id = $1`, int64(id), n); err != nil {
			return err
		}
	}
	return nil
}
