package notification

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// tables works with both dialects. Times are milliseconds since 1970. The ID of a webhook is Webhook.id.
var tables = sqlkit.Tables{Version: 1, Lock: "7365417204", Statements: []string{
	`CREATE TABLE IF NOT EXISTS {webhook} (id VARCHAR(40) PRIMARY KEY, state TEXT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS {message} (
		id       VARCHAR(40) PRIMARY KEY,
		webhook  VARCHAR(40) NOT NULL,
		body     BYTES NOT NULL,
		created  BIGINT NOT NULL,
		attempts BIGINT NOT NULL, -- that were begun
		next     BIGINT NOT NULL  -- attempt; for as long as an attempt may take, no other one begins
	)`,
	`CREATE INDEX IF NOT EXISTS {message_next} ON {message} (webhook, next)`,
}}

// message is the body of a request to a webhook, with the state of its attempts.
type message struct {
	id       string
	body     []byte
	created  time.Time
	attempts int
	next     time.Time
}

// outbox reads and writes the tables.
type outbox struct {
	db      *sqlkit.DB
	dialect sqlkit.Dialect
	ready   atomic.Bool // the tables exist
}

// open creates the tables, and removes messages that were created before the time old, because their webhooks may no
// longer be configured. After its first success, open does nothing.
func (o *outbox) open(ctx context.Context, old time.Time) error {
	if o.ready.Load() {
		return nil
	}
	err := o.db.Create(ctx, tables)
	if err == nil {
		_, err = o.db.Write(ctx, `DELETE FROM {message} WHERE created < $1`, sqlkit.Millis(old))
	}
	o.ready.Store(err == nil)
	return err
}

// write runs a transaction. Write transactions of all processes run one at a time.
func (o *outbox) write(ctx context.Context, f func(*sqlkit.Tx) error) error {
	return o.db.Transaction(ctx, o.dialect.WritingAlone(tables.Lock), f)
}

// update replaces the state of a webhook with the state that advance returns, and stores the message that advance
// returns, in one transaction. It does not write an unchanged state. It reports whether it stored a message.
func (o *outbox) update(ctx context.Context, webhook string, advance func(state) (state, *message, error)) (sent bool, err error) {
	const query = `SELECT state FROM {webhook} WHERE id = $1`
	changed, _, err := advanced(o.db.Row(ctx, query, webhook), advance)
	if err != nil || changed == nil {
		return false, err
	}
	err = o.write(ctx, func(tx *sqlkit.Tx) error {
		changed, m, err := advanced(tx.Row(query, webhook), advance)
		if err != nil || changed == nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO {webhook} (id, state) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET state = excluded.state`, webhook, string(changed)); err != nil {
			return err
		}
		if m == nil {
			return nil
		}
		sent = true
		_, err = tx.Exec(`INSERT INTO {message} (id, webhook, body, created, attempts, next) VALUES ($1, $2, $3, $4, 0, $4)`,
			m.id, webhook, m.body, sqlkit.Millis(m.created))
		return err
	})
	return sent && err == nil, err
}

// advanced reads a state and advances it. changed is nil if the state does not change.
func advanced(row interface{ Scan(...any) error }, advance func(state) (state, *message, error)) (changed []byte, m *message, err error) {
	var before state
	if err := row.Scan(sqlkit.JSON(&before)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, nil, err
	}
	was, err := json.Marshal(before)
	if err != nil {
		return nil, nil, err
	}
	next, m, err := advance(before)
	if err != nil {
		return nil, nil, err
	}
	now, err := json.Marshal(next)
	if err != nil || m == nil && bytes.Equal(was, now) {
		return nil, nil, err
	}
	return now, m, nil
}

// claim returns a due message of a webhook and reserves it for this process until the lease expires. It returns nil
// if no message is due. A message that is due later than longestDelay permits is from a wrong clock, and is due now.
func (o *outbox) claim(ctx context.Context, webhook string, now time.Time, lease time.Duration) (*message, error) {
	for o.ready.Load() {
		m := &message{}
		err := o.db.Row(ctx, `SELECT id, body, created, attempts FROM {message} WHERE webhook = $1 AND (next <= $2 OR next > $3) ORDER BY next, id LIMIT 1`,
			webhook, sqlkit.Millis(now), sqlkit.Millis(now.Add(2*longestDelay))).Scan(&m.id, &m.body, sqlkit.Time(&m.created), &m.attempts)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		n, err := o.db.Write(ctx, `UPDATE {message} SET attempts = attempts + 1, next = $3 WHERE id = $1 AND attempts = $2`,
			m.id, m.attempts, sqlkit.Millis(now.Add(lease)))
		if err != nil {
			return nil, err
		}
		if n == 1 {
			m.attempts++
			return m, nil
		} // if n is 0, another process has claimed the message
	}
	return nil, nil
}

// retry sets the time of the next attempt of a claimed message.
func (o *outbox) retry(ctx context.Context, m *message, next time.Time) error {
	_, err := o.db.Write(ctx, `UPDATE {message} SET next = $3 WHERE id = $1 AND attempts = $2`, m.id, m.attempts, sqlkit.Millis(next))
	return err
}

func (o *outbox) remove(ctx context.Context, m *message) error {
	_, err := o.db.Write(ctx, `DELETE FROM {message} WHERE id = $1`, m.id)
	return err
}
