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

// A relay reads the messages in the order of due and seq, and continues after the last row (front). It does not begin with the first
// row each time, because a database keeps deleted rows, and reads them again, as long as a transaction with an older snapshot
// runs. Rows can remain, or appear, before the front: a destination refuses messages, an attempt is repeated, a key is no longer held,
// or a transaction was committed late. The front therefore starts again overlap earlier when it has reached the end. Another search,
// the sweep, finds the older rows in short queries, which use a tenth of the time, so that many rows that cannot leave do not
// delay new ones.
const (
	overlap    = 10 * time.Second
	sweepEvery = 5 * time.Second
	lateCommit = 24 * time.Hour         // maximum time between an insert and its commit
	sweepTime  = 20 * time.Millisecond  // of consecutive queries of a sweep
	sliceTime  = 200 * time.Millisecond // of one query, which limits the time range of the next one
	sweepLimit = 2000                   // rows of a query
)

// position is the place after a row, in the order of due and seq.
type position struct{ due, seq int64 }

// back moves a position before all rows with a due time, unless it is there already.
func (p *position) back(due int64) {
	if due <= p.due {
		*p = position{due - 1, math.MaxInt64}
	}
}

// scan is the progress of a relay through the messages. Times are in ms by the clock of the database.
type scan struct {
	started bool
	front   position

	from    int64     // no earlier row exists, except for late commits since the start of the last sweep
	running bool      // a sweep runs
	at      position  // its progress
	end     int64     // it ends before this time
	low     int64     // first time at which it has found a row
	window  int64     // time range of its next query
	pause   time.Time // until its next query
}

// again makes the relay find a row again that it has read.
func (s *scan) again(due int64) {
	if due > s.front.due-overlap.Milliseconds() {
		s.front.back(due)
		return
	}
	s.from, s.running, s.pause = min(s.from, due), false, time.Time{}
}

// start searches the first row.
func (r *Relay) start(ctx context.Context) error {
	var due sql.NullInt64
	var now int64
	err := r.box.db.Row(sqlkit.Long(ctx), `SELECT `+r.box.clock()+`, (SELECT min(due) FROM {messages})`).Scan(&now, &due)
	if err != nil {
		return err
	}
	from := now - overlap.Milliseconds()
	if due.Valid {
		from = min(from, due.Int64)
	}
	r.scan = scan{started: true, front: position{from - 1, math.MaxInt64}, from: from}
	return nil
}

// sweep searches old rows that can be published now, before the front, and returns their numbers. It reads neither bodies nor headers,
// and does not need the lease.
func (r *Relay) sweep(ctx context.Context, now int64) (seqs []int64, err error) {
	s := &r.scan
	for began := r.wall(); len(seqs) == 0; {
		if r.wall().Before(s.pause) || r.wall().Sub(began) > sweepTime {
			return nil, nil
		}
		if !s.running {
			from := min(s.from, now-lateCommit.Milliseconds())
			s.running, s.end, s.low, s.at = true, min(now-overlap.Milliseconds(), s.front.due), math.MaxInt64, position{from - 1, math.MaxInt64}
			s.window = max(s.window, overlap.Milliseconds())
			s.from = now // of the next sweep, together with low
		}
		if seqs, err = r.slice(ctx, now); err != nil {
			s.window = max(1, s.window/8)
			return nil, fmt.Errorf("cannot search old messages: %w", err)
		}
	}
	return seqs, nil
}

// slice runs one query of a sweep. It skips messages that must not be published now, because their last attempt or their destination has
// failed.
func (r *Relay) slice(ctx context.Context, now int64) (seqs []int64, err error) {
	s := &r.scan
	began := time.Now()
	to := min(s.end, s.at.due+s.window)
	query := fmt.Sprintf(`SELECT seq, due, retry_at, exchange, routing_key FROM {messages}%s
		WHERE due <= $1 AND due >= $2 AND (due > $2 OR seq > $3) ORDER BY due, seq LIMIT %d`, r.box.forceIndex(), sweepLimit)
	n, at := 0, s.at
	var retryAt int64
	var dest [2]string
	for err := range r.box.inOrder(ctx, query, to, s.at.due, s.at.seq).Scan(&at.seq, &at.due, &retryAt, &dest[0], &dest[1]) {
		if err != nil {
			return nil, err
		}
		n++
		s.at, s.low = at, min(s.low, at.due)
		if failing := r.dests[dest]; retryAt > now || failing != nil && now < failing.until {
			continue
		}
		if seqs = append(seqs, at.seq); len(seqs) == r.cfg.Batch {
			return seqs, nil
		}
	}
	took := time.Since(began)
	switch {
	case took > sliceTime:
		s.window = max(1, s.window/2)
	case took < sliceTime/10:
		s.window = min(2*s.window, lateCommit.Milliseconds())
	}
	if n < sweepLimit {
		s.at = position{to, math.MaxInt64}
	}
	wait := 9 * took
	if n < sweepLimit && to >= s.end { // the end of the sweep
		s.running, s.from = false, min(s.from, s.low)
		wait = max(wait, sweepEvery)
	}
	if r.box.cfg.Clock == nil || !s.running {
		s.pause = r.wall().Add(wait)
	}
	return seqs, nil
}

// wall returns the time by the clock of this process, or of a test.
func (r *Relay) wall() time.Time {
	if c := r.box.cfg.Clock; c != nil {
		return c()
	}
	return time.Now()
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

// idle reports whether no message is due after the front, and returns the clock of the database. Without this query, a relay would
// write to the database each time it polls. The subquery lets PostgreSQL use the index, although the clock advances.
func (r *Relay) idle(ctx context.Context) (now int64, idle bool, err error) {
	clock := `(SELECT ` + r.box.clock() + `)`
	if err := r.box.db.Row(ctx, `SELECT `+clock).Scan(&now); err != nil {
		return 0, false, err
	}
	var due int64
	idle = true
	excluded, args := r.dests.excluded(now, 4, []any{r.scan.front.due, r.scan.front.seq, now})
	for err := range r.box.inOrder(ctx, `SELECT due FROM {messages}`+r.box.forceIndex()+` WHERE due <= $3 AND due >= $1 AND (due > $1 OR seq > $2)
		AND retry_at <= $3`+excluded+` ORDER BY due LIMIT 1`, args...).Scan(&due) {
		if err != nil {
			return 0, false, err
		}
		idle = false
	}
	return now, idle, nil
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

// read reads the next rows after the front that are due at now, and the old rows that a sweep has found. It returns whether more rows
// may be due.
func (r *Relay) read(ctx context.Context, now int64, old []int64) (items []*item, more bool, err error) {
	s := &r.scan
	before := s.front
	excluded, args := r.dests.excluded(now, 4, []any{s.front.due, s.front.seq, now})
	items, more, err = r.query(ctx, `due <= $3 AND due >= $1 AND (due > $1 OR seq > $2) AND retry_at <= $3`+excluded, args...)
	if err != nil {
		return nil, false, err
	}
	for _, m := range items {
		s.front = position{m.due, m.seq}
	}
	if !more {
		s.front.back(now - overlap.Milliseconds())
	}
	if len(old) > 0 {
		condition, args := r.box.among("seq", "$2", old)
		found, _, err := r.query(ctx, `retry_at <= $1 AND due <= $1 AND `+condition, append([]any{now}, args...)...)
		if err != nil {
			s.front = before
			return nil, false, err
		}
		more = true
		for _, m := range found {
			if !slices.ContainsFunc(items, func(other *item) bool { return other.seq == m.seq }) {
				items = append(items, m)
			}
		}
	}
	return items, more, r.link(ctx, items)
}

// query reads rows that match a condition. It returns whether more rows may match.
func (r *Relay) query(ctx context.Context, where string, args ...any) (items []*item, more bool, err error) {
	var size int64
	query := fmt.Sprintf(`SELECT seq, due, okey, message_id, exchange, routing_key, properties, headers, body, attempts
		FROM {messages}%s WHERE %s ORDER BY due, seq LIMIT %d`, r.box.forceIndex(), where, r.cfg.Batch)
	for rows, err := range r.box.inOrder(ctx, query, args...) {
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
		if size += int64(len(m.message.Body)); size >= readLimit {
			return items, true, nil
		}
	}
	return items, len(items) == r.cfg.Batch, nil
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
