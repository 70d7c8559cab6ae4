package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Add stores new messages in state failed, in one transaction, and returns their IDs in the same order. Add is for
// messages from sources other than a failed queue. Use an Ingest to archive the messages of a failed queue.
//
// If one of the messages cannot be stored, Add stores none of them and returns ErrUnstorable. To find that message, add
// the messages one by one.
func (a *Archive) Add(ctx context.Context, messages []failed.Message) ([]failed.ID, error) {
	encoded := make([]Arrival, len(messages))
	for i := range messages {
		var err error
		if encoded[i], err = a.encode(messages[i]); err != nil {
			return nil, fmt.Errorf("cannot add message %d of %d: %w", i+1, len(messages), err)
		}
	}
	return a.addEncoded(ctx, encoded, func(*tx) error { return nil })
}

// AddDelivered stores messages that a failed queue delivered, in one transaction, and returns their IDs in the same order.
//
// If a process fails or loses its connection after ingest and before the acknowledgement, the archive already contains
// the redelivered message. In this case ingest returns the ID of the stored message. A stored message matches a
// redelivered arrival if it has the same failed queue, properties, headers (except the delivery counts of the broker)
// and body, and if its delivery belongs to another session and is not recorded as settled. Within a session, a stored
// message matches at most one arrival. Therefore ingest neither stores a redelivery twice nor drops a second failure
// with identical bytes.
//
// If another owner has the lease of the failed queue, ingest stores nothing and returns ErrState.
func (a *Archive) AddDelivered(ctx context.Context, arrivals []failed.Arrived) ([]failed.ID, error) {
	encoded := make([]Arrival, len(arrivals))
	for i := range arrivals {
		var err error
		if encoded[i], err = a.encodeDelivered(&arrivals[i]); err != nil {
			return nil, fmt.Errorf("cannot add message %d of %d: %w", i+1, len(arrivals), err)
		}
	}
	return a.addEncoded(ctx, encoded, func(tx *tx) error { return tx.owned(arrivals) })
}

// addEncoded stores the arrivals that are not in the archive yet. If allowed returns an error, addEncoded stores
// nothing.
func (a *Archive) addEncoded(ctx context.Context, encoded []Arrival, allowed func(*tx) error) (_ []failed.ID, err error) {
	defer failed.Annotate(&err, "cannot add %d messages", len(encoded))
	if len(encoded) == 0 {
		return nil, nil
	}
	ids := make([]failed.ID, len(encoded))
	err = a.write(ctx, func(tx *tx) error {
		if err := allowed(tx); err != nil {
			return err
		}
		var added []*Arrival
		for i := range encoded {
			e := &encoded[i]
			known, err := tx.redelivered(e)
			if err != nil {
				return err
			}
			if ids[i] = known; known == 0 {
				added = append(added, e)
			}
		}
		return tx.add(added)
	})
	if err != nil {
		return nil, err
	}
	for i := range ids {
		if ids[i] == 0 {
			ids[i] = encoded[i].m.ID
		}
	}
	return ids, nil
}

// MarkSettled records that the deliveries of the given messages are acknowledged. From then on, ingest treats an equal
// arrival as a new message.
func (a *Archive) MarkSettled(ctx context.Context, ids []failed.ID) (err error) {
	defer failed.Annotate(&err, "cannot record that %d messages are settled", len(ids))
	if len(ids) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`DELETE FROM {delivery} WHERE `+a.d.in("message", "$1"), list(a.d, ids))
		return err
	})
}

// redelivered returns the ID of the stored message that matches an arrival, or 0 if the arrival is new. It assigns the
// stored message to the session of the arrival, so that the stored message does not match another arrival of that
// session.
func (t *tx) redelivered(e *Arrival) (id failed.ID, err error) {
	if !e.redelivered {
		return 0, nil
	}
	err = t.Row(`UPDATE {delivery} SET session = $1 WHERE message =
		(SELECT min(message) FROM {delivery} WHERE digest = $2 AND session <> $1) RETURNING message`, e.session, e.digest).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// add stores arrivals and assigns IDs to their messages.
func (t *tx) add(added []*Arrival) error {
	if len(added) == 0 {
		return nil
	}
	first, err := t.next("message", len(added))
	if err != nil {
		return err
	}
	for i, e := range added {
		e.m.ID = failed.ID(first) + failed.ID(i)
		if err := t.verifyBack(e); err != nil {
			return err
		}
	}
	if err := errors.Join(t.group(added), t.forgetWaiting(added)); err != nil {
		return err
	}
	var messages, contents, searches, deliveries [][]any
	for _, e := range added {
		m := &e.m
		pos := position(m.LastFailed, m.ID)
		short := failed.Cut(m.Error, maxErrorShown)
		var whole any
		if len(short) < len(m.Error) {
			whole = []byte(m.Error)
		}
		messages = append(messages, []any{
			pos, int64(m.ID), int64(m.Group), e.queue, codes[m.State], m.Attempts,
			sqlkit.Millis(m.FirstFailed), sqlkit.Millis(m.LastFailed), sqlkit.Millis(m.Archived),
			[]byte(m.FailedQueue), []byte(m.Exchange), []byte(m.RoutingKey), []byte(m.Properties.MessageID),
			[]byte(m.Reason), []byte(short), len(m.Body), int64(m.Back), int64(m.BackOf), orNull(m.Discarded),
		})
		body := m.Body
		if body == nil {
			body = []byte{}
		}
		contents = append(contents, []any{int64(m.ID), e.headers, e.properties, e.errors, m.ErrorsDropped, whole, body})
		searches = append(searches, []any{pos, termsOf(m, e.queue, t.cfg.Redact)})
		if e.digest != nil {
			deliveries = append(deliveries, []any{int64(m.ID), e.digest, e.session})
		}
	}
	key := "pos"
	if t.cfg.Dialect == SQLite {
		key = "rowid"
	}
	return errors.Join(
		t.insert("{message}", messageColumns, "", messages),
		t.insert("{content}", contentColumns, "", contents),
		t.insert("{search}", []string{key, "words"}, "words", searches),
		t.insert("{delivery}", []string{"message", "digest", "session"}, "", deliveries),
	)
}

// maxErrorShown is the maximum length of the error in a Summary, in bytes.
const maxErrorShown = 1 << 10

var (
	messageColumns = []string{
		"pos", "id", "grp", "queue", "state", "attempts", "first_failed", "last_failed", "archived",
		"failed_queue", "exchange", "routing_key", "message_id", "reason", "error", "size", "back", "back_of", "discarded",
	}
	contentColumns = []string{"message", "headers", "properties", "errors", "dropped", "error", "body"}
)

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// If a replay sent the message that an arrival names in topology.HeaderReplay, verifyBack records that the message
// failed again. Otherwise it clears Back and BackOf.
func (t *tx) verifyBack(e *Arrival) error {
	if e.m.Back == 0 {
		return nil
	}
	known, err := t.failedAgain(e)
	if !known {
		e.m.Back, e.m.BackOf = 0, 0
	}
	return err
}

// earliest returns the earlier of two times. If a is zero, it returns b.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
