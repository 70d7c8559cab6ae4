package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
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

// sorted begins a transaction in PostgreSQL whose queries read the index of (due, seq). If the statistics of the table are old or
// missing, PostgreSQL would sort all due messages for each batch.
const sorted = sqlkit.Begin + "; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"

// forceIndex has the same purpose in MySQL. SQLite uses the index.
func (b *Box) forceIndex() string {
	if b.cfg.Dialect == MySQL {
		return " FORCE INDEX (by_due)"
	}
	return ""
}

// inOrder queries the first messages in the order of due and seq.
func (b *Box) inOrder(ctx context.Context, query string, args ...any) sqlkit.Rows {
	if b.cfg.Dialect != PostgreSQL {
		return b.db.Rows(ctx, query, args...)
	}
	return func(yield func(*sql.Rows, error) bool) {
		stopped := false
		err := b.db.Transaction(ctx, []string{sorted}, func(tx *sqlkit.Tx) error {
			for rows, err := range tx.Rows(query, args...) {
				if err != nil {
					return err
				}
				if stopped = !yield(rows, nil); stopped {
					break
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// idle reports whether no message is due. Without this query, a relay would write to the database each time it polls. The
// subquery lets PostgreSQL use the index, although the clock advances.
func (r *Relay) idle(ctx context.Context) (idle bool, err error) {
	var due int64
	now := `(SELECT ` + r.box.clock() + `)`
	idle = true
	for err := range r.box.inOrder(ctx, `SELECT due FROM {messages}`+r.box.forceIndex()+` WHERE due <= `+now+` AND retry_at <= `+now+` ORDER BY due LIMIT 1`).Scan(&due) {
		if err != nil {
			return false, err
		}
		idle = false
	}
	return idle, nil
}

// item is a row that a relay publishes.
type item struct {
	seq, due int64
	key      string
	previous int64 // seq of the previous row of the key; 0 if there is none, -1 if it is unknown
	attempts int
	message  reprise.Message
	invalid  error // the row cannot be decoded
}

// readLimit is the maximum size of the bodies of a batch, unless one body is larger.
const readLimit = 16 << 20

// read reads the next rows that are due at now. It returns whether more rows may be due.
func (r *Relay) read(ctx context.Context, now int64) (items []*item, more bool, err error) {
	if r.scan.began == 0 {
		r.scan = scan{due: math.MinInt64, whole: true, began: now}
	}
	var size int64
	query := fmt.Sprintf(`SELECT seq, due, okey, message_id, exchange, routing_key, properties, headers, body, attempts
		FROM {messages}%s WHERE due <= $1 AND due >= $2 AND (due > $2 OR seq > $3) AND retry_at <= $1
		ORDER BY due, seq LIMIT %d`, r.box.forceIndex(), r.cfg.Batch)
	for rows, err := range r.box.inOrder(ctx, query, now, r.scan.due, r.scan.seq) {
		var props, headers string
		var m item
		if err == nil {
			err = rows.Scan(&m.seq, &m.due, sqlkit.Text(&m.key), &m.message.MessageID, &m.message.Exchange, &m.message.RoutingKey, &props, &headers, &m.message.Body, &m.attempts)
		}
		if err != nil {
			return nil, false, err
		}
		m.invalid = decode(&m.message, props, headers, m.due)
		items = append(items, &m)
		r.scan.due, r.scan.seq = m.due, m.seq
		if size += int64(len(m.message.Body)); size >= readLimit {
			more = true
			break
		}
	}
	if more = more || len(items) == r.cfg.Batch; !more {
		r.scan.ended(now)
	}
	return items, more, r.link(ctx, items)
}

// link sets the previous rows of the items with keys. It is a separate query, because MySQL reads all rows of a key to find the
// previous row of one. A row that commits later has a higher number than the rows of its key, and is not among the items.
func (r *Relay) link(ctx context.Context, items []*item) error {
	byKey := map[string][]*item{}
	for _, m := range items {
		if m.key != "" {
			m.previous = -1 // not among the first rows of its key
			byKey[m.key] = append(byKey[m.key], m)
		}
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(byKey)), linkChunk) {
		first, err := r.firstOf(ctx, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			for _, m := range byKey[key] {
				if i := slices.Index(first[key], m.seq); i == 0 {
					m.previous = 0
				} else if i > 0 {
					m.previous = first[key][i-1]
				}
			}
		}
	}
	return nil
}

// linkChunk is the number of keys in a query.
const linkChunk = 50

// firstOf returns the first rows of keys.
func (r *Relay) firstOf(ctx context.Context, keys []string) (map[string][]int64, error) {
	var query strings.Builder
	var args []any
	n := linkChunk // few different statements, because drivers cache their plans
	if len(keys) == 1 {
		n = 1
	}
	for i := range n {
		if i > 0 {
			query.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&query, `SELECT okey, seq FROM (SELECT okey, seq FROM {messages} WHERE okey = $%d ORDER BY seq LIMIT %d) AS k%d`, i+1, maxRounds+1, i)
		if i < len(keys) {
			args = append(args, keys[i])
		} else {
			args = append(args, nil) // no rows
		}
	}
	first := map[string][]int64{}
	var key string
	var seq int64
	for err := range r.box.db.Rows(ctx, query.String(), args...).Scan(&key, &seq) {
		if err != nil {
			return nil, err
		}
		first[key] = append(first[key], seq)
	}
	for _, seqs := range first {
		slices.Sort(seqs)
	}
	return first, nil
}
