package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// DefaultLimit is the default of Filter.Limit.
const DefaultLimit = 1000

// Filter selects messages that have not left. A message must satisfy all conditions that are set.
type Filter struct {
	Seqs       []int64 // one of these Row.Seq; nil: no restriction
	Through    int64   // Row.Seq of at most this; see Count
	MessageID  string  // several messages can have one id
	Key        string
	Exchange   string
	RoutingKey string
	Failed     bool      // a relay has failed to publish the message
	From       time.Time // due at this time or later
	Before     time.Time // due before this time

	// After is the last row of the previous page. Default: the first page.
	After *Row

	// Limit is the maximum number of messages. Default: 1000.
	Limit int
}

// Row is a message that has not left.
type Row struct {
	// Seq is the number of the row. Later rows of a key have higher numbers.
	Seq int64

	// Message is the message. List omits the headers and the body.
	reprise.Message

	Due    time.Time
	Key    string // Message.Key
	Unique string // Message.Unique

	// Attempts is the number of failed attempts. RetryAt and Error belong to the last of them.
	Attempts int
	RetryAt  time.Time
	Error    string
}

// conditions returns the conditions of a filter, and their arguments.
func (b *Box) conditions(f Filter) (text string, args []any) {
	var all []string
	is := func(condition string, value any) {
		args = append(args, value)
		all = append(all, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(args))))
	}
	if f.Seqs != nil && len(f.Seqs) == 0 {
		all = append(all, "1 = 0")
	} else if f.Seqs != nil {
		condition, list := b.among("seq", fmt.Sprintf("$%d", len(args)+1), f.Seqs)
		all, args = append(all, condition), append(args, list...)
	}
	if f.Through != 0 {
		is("seq <= ?", f.Through)
	}
	for _, c := range []struct{ column, value string }{
		{"message_id", f.MessageID}, {"okey", f.Key}, {"exchange", f.Exchange}, {"routing_key", f.RoutingKey},
	} {
		if c.value != "" {
			is(c.column+" = ?", c.value)
		}
	}
	if f.Failed {
		all = append(all, "attempts > 0")
	}
	if !f.From.IsZero() {
		is("due >= ?", f.From.Add(time.Millisecond-1).UnixMilli())
	}
	if !f.Before.IsZero() {
		is("due < ?", f.Before.Add(time.Millisecond-1).UnixMilli())
	}
	if f.After != nil {
		due := f.After.Due.UnixMilli()
		is("due >= ?", due)
		n := len(args)
		args = append(args, due, f.After.Seq)
		all = append(all, fmt.Sprintf("(due > $%d OR seq > $%d)", n+1, n+2))
	}
	return strings.Join(append(all, "1 = 1"), " AND "), args
}

// List returns messages that have not left, in the order of Due and Seq. Messages that are being published are in the list until the
// broker has confirmed them.
func (b *Box) List(ctx context.Context, f Filter) ([]Row, error) {
	all, err := b.rows(ctx, f, "'{}', ''")
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot list messages: %w", err)
	}
	return all, nil
}

// Get returns a message that has not left, with its headers and its body, or nil if there is none.
func (b *Box) Get(ctx context.Context, seq int64) (*Row, error) {
	found, err := b.rows(ctx, Filter{Seqs: []int64{seq}}, "headers, body")
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot read message %d: %w", seq, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// rows returns the first messages that a filter selects. The argument contents is the columns for the headers and the body.
func (b *Box) rows(ctx context.Context, f Filter, contents string) (all []Row, err error) {
	where, args := b.conditions(f)
	query := fmt.Sprintf(`SELECT seq, due, okey, uniq, message_id, exchange, routing_key, properties, attempts, retry_at, error, %s
		FROM {messages} WHERE %s ORDER BY due, seq LIMIT %d`, contents, where, cmp.Or(f.Limit, DefaultLimit))
	for rows, err := range b.db.Rows(ctx, query, args...) {
		var r Row
		var due, retryAt int64
		var props, headers string
		if err == nil {
			err = rows.Scan(&r.Seq, &due, sqlkit.Text(&r.Key), sqlkit.Text(&r.Unique), &r.MessageID, &r.Exchange, &r.RoutingKey, &props, &r.Attempts, &retryAt, &r.Error, &headers, &r.Body)
		}
		if err != nil {
			return nil, err
		}
		r.Due, r.RetryAt = time.UnixMilli(due).UTC(), sqlkit.TimeOf(retryAt)
		if err := decode(&r.Message, props, headers, due); err != nil && r.Error == "" {
			r.Error = err.Error() // a program other than this package has inserted the row
		}
		all = append(all, r)
	}
	return all, nil
}

// Count returns the number of messages that a filter selects, without its Limit, and the highest Row.Seq. With this number as
// Filter.Limit, and with Filter.Through, Cancel and Move act on at most the counted messages.
func (b *Box) Count(ctx context.Context, f Filter) (n int, through int64, err error) {
	where, args := b.conditions(f)
	if err := b.db.Row(ctx, `SELECT count(*), COALESCE(max(seq), 0) FROM {messages} WHERE `+where, args...).Scan(&n, &through); err != nil {
		return 0, 0, fmt.Errorf("outbox: cannot count messages: %w", err)
	}
	return n, through, nil
}

// Result is the number of messages that Cancel or Move has found.
type Result struct {
	// Done is the number of changed messages that no relay has read. A canceled message of this number never leaves.
	Done int

	// Attempted is the number of changed messages that a relay has failed to publish. The broker may have stored such a message,
	// for example if its confirm was lost.
	Attempted int

	// TooLate is the number of messages that were not changed, because they are due and a relay may be publishing them.
	TooLate int
}

// Cancel deletes messages that have not left. It acts on the first messages of List. If it finds none, the messages have left, or do
// not exist. If it returns an error, the messages may have been deleted.
func (b *Box) Cancel(ctx context.Context, f Filter) (Result, error) {
	r, err := b.change(ctx, f, b.remove)
	if err != nil {
		return Result{}, fmt.Errorf("outbox: cannot cancel messages: %w", err)
	}
	return r, nil
}

// Move changes the time at which messages are due, to t or to now, whichever is later. It acts on the first messages of
// List. For a message that a relay has failed to publish, it changes the time of the next attempt instead.
func (b *Box) Move(ctx context.Context, f Filter, t time.Time) (Result, error) {
	if afterYear9999(t) {
		return Result{}, fmt.Errorf("outbox: cannot move messages: %w: the time must not be after the year 9999: got %s", reprise.ErrInvalidMessage, t)
	}
	r, err := b.change(ctx, f, func(tx *sqlkit.Tx, now int64, waiting, attempted []pending) error {
		return b.postpone(tx, max(now, t.Add(time.Millisecond-1).UnixMilli()), waiting, attempted)
	})
	if err != nil {
		return Result{}, fmt.Errorf("outbox: cannot move messages: %w", err)
	}
	b.signal()
	return r, nil
}

// pending is a row that Cancel or Move changes.
type pending struct {
	seq, due, retryAt int64
	unique, id        string
}

// change calls f with the rows that no relay reads. A relay raises the horizon to the current time before it reads, and reads
// only rows up to this time. While this transaction locks the horizon, a row after the horizon is therefore not in a relay.
func (b *Box) change(ctx context.Context, f Filter, do func(tx *sqlkit.Tx, now int64, waiting, attempted []pending) error) (found Result, err error) {
	where, args := b.conditions(f)
	if where == "1 = 1" {
		return Result{}, fmt.Errorf("Filter must have a condition")
	}
	return found, b.transaction(ctx, func(tx *sqlkit.Tx) error {
		var horizon, now int64
		if err := tx.Row(`SELECT horizon, `+b.clock()+` FROM {relay} WHERE id = 1`+b.locking(true)).Scan(&horizon, &now); err != nil {
			return err
		}
		var p pending
		var waiting, attempted []pending
		query := fmt.Sprintf(`SELECT seq, due, retry_at, uniq, message_id FROM {messages} WHERE %s ORDER BY due, seq LIMIT %d`, where, cmp.Or(f.Limit, DefaultLimit))
		for err := range tx.Rows(query+b.locking(false), args...).Scan(&p.seq, &p.due, &p.retryAt, sqlkit.Text(&p.unique), &p.id) {
			switch {
			case err != nil:
				return err
			case p.due > horizon:
				waiting = append(waiting, p)
			case p.retryAt > horizon:
				attempted = append(attempted, p)
			default:
				found.TooLate++
			}
		}
		found.Done, found.Attempted = len(waiting), len(attempted)
		return do(tx, now, waiting, attempted)
	})
}

func (b *Box) remove(tx *sqlkit.Tx, _ int64, waiting, attempted []pending) error {
	for _, p := range waiting {
		if p.unique != "" {
			if _, err := tx.Exec(`DELETE FROM {uniq} WHERE ukey = $1 AND message_id = $2`, p.unique, p.id); err != nil {
				return err
			}
		}
	}
	return b.execAmong(tx, `DELETE FROM {messages} WHERE `, slices.Concat(waiting, attempted))
}

func (b *Box) postpone(tx *sqlkit.Tx, to int64, waiting, attempted []pending) error {
	for _, p := range waiting {
		if p.unique != "" {
			if _, err := tx.Exec(`UPDATE {uniq} SET until = until + $1 WHERE ukey = $2 AND message_id = $3`, to-p.due, p.unique, p.id); err != nil {
				return err
			}
		}
	}
	if err := b.execAmong(tx, fmt.Sprintf(`UPDATE {messages} SET due = %d WHERE `, to), waiting); err != nil {
		return err
	}
	return b.execAmong(tx, fmt.Sprintf(`UPDATE {messages} SET retry_at = %d WHERE `, to), attempted)
}

func (b *Box) execAmong(tx *sqlkit.Tx, statement string, rows []pending) error {
	if len(rows) == 0 {
		return nil
	}
	seqs := make([]int64, len(rows))
	for i, r := range rows {
		seqs[i] = r.seq
	}
	condition, args := b.among("seq", "$1", seqs)
	_, err := tx.Exec(statement+condition, args...)
	return err
}

// Status is the state of a box.
type Status struct {
	// Lag is the time for which the first message that is due has waited. 0 means that no message is due.
	Lag time.Duration

	// Next is the time at which the first message is due, also in the past. Zero means that the box is empty.
	Next time.Time

	// Relay reports whether a relay has the lease, that is, whether any relay runs.
	Relay bool
}

// Status returns the state of the box. A Lag of more than a minute is a reason for an alert.
func (b *Box) Status(ctx context.Context) (Status, error) {
	var s Status
	var first sql.NullInt64
	var now, until int64
	err := b.db.Row(ctx, `SELECT (SELECT min(due) FROM {messages}), until, `+b.clock()+` FROM {relay} WHERE id = 1`).Scan(&first, &until, &now)
	if err != nil {
		return Status{}, fmt.Errorf("outbox: cannot read the status: %w", err)
	}
	s.Relay = current(until, now)
	if first.Valid {
		s.Next = time.UnixMilli(first.Int64).UTC()
		s.Lag = max(0, time.Duration(now-first.Int64)*time.Millisecond)
	}
	return s, nil
}
