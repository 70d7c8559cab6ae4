package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise"
)

// A relay reads the messages in the order of due and seq, and continues after the last row. It does not begin with the first row each
// time, because a database keeps deleted rows, and reads them again, as long as a transaction with an older snapshot runs. Rows
// can appear before the position of the relay: a transaction was committed late, an attempt is repeated, or a key is no
// longer held. When the relay has read all due rows, it therefore starts again overlap earlier, and every wholePass at the
// first row.
const (
	overlap   = 10 * time.Second
	wholePass = 5 * time.Second
)

// scan is the position of a relay in the messages. The zero scan starts a whole pass.
type scan struct {
	due, seq int64 // the last row that was read

	whole bool  // the current pass began at the first row
	began int64 // start of the last whole pass, in ms by the clock of the database
	took  int64 // its duration
}

// back makes the next search find a row.
func (s *scan) back(due int64) {
	if due <= s.due {
		s.due, s.seq = due-1, math.MaxInt64
	}
}

// ended starts the next pass after all rows were read that were due at now. Whole passes use at most a tenth of the time.
func (s *scan) ended(now int64) {
	if s.whole {
		s.whole, s.took = false, now-s.began
	}
	if now-s.began >= max(wholePass.Milliseconds(), 10*s.took) {
		*s = scan{}
		return
	}
	s.back(now - overlap.Milliseconds())
}

// item is a row that a relay publishes.
type item struct {
	seq, due, size int64
	key            string
	previous       int64 // seq of the previous row of the key; 0 if there is none
	attempts       int
	message        reprise.Message
	invalid        error // the row cannot be decoded
}

// readLimit is the maximum size of the bodies of a batch, unless one body is larger.
const readLimit = 16 << 20

// read reads the next rows that are due at now. It returns whether more rows may be due.
func (r *Relay) read(ctx context.Context, now int64) (items []*item, more bool, err error) {
	if r.scan.began == 0 {
		r.scan = scan{due: math.MinInt64, whole: true, began: now}
	}
	var size int64
	query := fmt.Sprintf(`SELECT m.seq, m.due, m.okey, m.message_id, m.exchange, m.routing_key, m.properties, m.headers, m.body, m.attempts,
		CASE WHEN m.okey IS NULL THEN NULL ELSE (SELECT max(p.seq) FROM {messages} p WHERE p.okey = m.okey AND p.seq < m.seq) END
		FROM {messages} m WHERE m.due <= $1 AND m.due >= $2 AND (m.due > $2 OR m.seq > $3) AND m.retry_at <= $1
		ORDER BY m.due, m.seq LIMIT %d`, r.cfg.Batch)
	for rows, err := range r.box.db.Rows(ctx, query, now, r.scan.due, r.scan.seq) {
		var key sql.NullString
		var previous sql.NullInt64
		var props, headers string
		var m item
		if err == nil {
			err = rows.Scan(&m.seq, &m.due, &key, &m.message.MessageID, &m.message.Exchange, &m.message.RoutingKey, &props, &headers, &m.message.Body, &m.attempts, &previous)
		}
		if err != nil {
			return nil, false, err
		}
		m.key, m.previous = key.String, previous.Int64
		m.invalid = decode(&m.message, props, headers, m.due)
		items = append(items, &m)
		r.scan.due, r.scan.seq = m.due, m.seq
		if size += int64(len(m.message.Body)); size >= readLimit {
			return items, true, nil
		}
	}
	if len(items) == r.cfg.Batch {
		return items, true, nil
	}
	r.scan.ended(now)
	return items, false, nil
}
