package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Tx is a transaction of the caller: a *sql.Tx, or the transaction of a library that has these methods.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Insert inserts messages in a transaction of the caller. If the transaction is committed, a relay publishes each message
// at least once, always with the same MessageID. If the transaction is rolled back, no message leaves.
//
// Insert first encodes all messages, and returns an error that matches reprise.ErrInvalidMessage without a statement if
// one is invalid. After another error, the caller must roll back. Insert sets the fields MessageID and Duplicate of the
// messages, and does not keep them.
//
// A message with a Key or a Unique key locks this key until the end of the transaction. Insert locks the keys of one call
// in a fixed order. If a transaction calls Insert more than once, another transaction may lock the same keys in the opposite order; then
// the database aborts one of them as a deadlock. In SQLite, begin the transaction with a statement that writes.
func (b *Box) Insert(ctx context.Context, tx Tx, messages ...*Message) error {
	switch tx.(type) {
	case nil, *sql.DB, *sql.Conn:
		return fmt.Errorf("outbox: cannot insert messages: transaction must be a transaction: got %T (use Schedule without a transaction)", tx)
	}
	rows, err := b.encodeAll(ctx, messages)
	if err != nil {
		return err
	}
	if err := b.insert(theirs{ctx, b.db, tx}, rows); err != nil {
		return fmt.Errorf("outbox: cannot insert messages: %w", err)
	}
	b.signal()
	return nil
}

// Schedule inserts messages as Insert does, in a transaction of its own. After an error that matches neither
// reprise.ErrInvalidMessage nor context.Canceled, the messages may have been inserted. Set Unique to repeat the call
// without inserting them twice.
func (b *Box) Schedule(ctx context.Context, messages ...*Message) error {
	rows, err := b.encodeAll(ctx, messages)
	if err != nil {
		return err
	}
	if err := b.transaction(ctx, func(tx *sqlkit.Tx) error { return b.insert(own{tx}, rows) }); err != nil {
		return fmt.Errorf("outbox: cannot insert messages: %w", err)
	}
	b.signal()
	return nil
}

func (b *Box) encodeAll(ctx context.Context, messages []*Message) ([]row, error) {
	rows := make([]row, len(messages))
	for i, m := range messages {
		var err error
		if rows[i], err = b.encode(ctx, m); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// runner runs statements in the syntax of package sqlkit, in a transaction.
type runner interface {
	Exec(query string, args ...any) (changed int64, err error)
	Row(query string, args ...any) *sql.Row
}

type own struct{ *sqlkit.Tx }

type theirs struct {
	ctx context.Context
	db  *sqlkit.DB
	tx  Tx
}

func (t theirs) Exec(query string, args ...any) (int64, error) {
	query, args = t.db.Bind(query, args...)
	result, err := t.tx.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t theirs) Row(query string, args ...any) *sql.Row {
	query, args = t.db.Bind(query, args...)
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// insert inserts rows. It begins with the locks, in statements of their own: only a number that the database assigns after
// the lock follows the order of the commits.
func (b *Box) insert(tx runner, rows []row) error {
	if err := b.lockKeys(tx, rows); err != nil {
		return err
	}
	rows, err := b.claimUnique(tx, rows)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), 64)
		for n&(n-1) != 0 { // few different statements, because drivers cache their plans
			n &= n - 1
		}
		if err := b.insertRows(tx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (b *Box) insertRows(tx runner, rows []row) error {
	var values []string
	var args []any
	for _, r := range rows {
		at, delay := r.of.dueArgs()
		n := len(args)
		values = append(values, fmt.Sprintf("(%s, 0, $%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d, 0, '')", b.due(n+1, n+2), n+3, n+4, n+5, n+6, n+7, n+8, n+9, n+10))
		m := r.of
		args = append(args, at, delay, null(m.Key), null(m.Unique), m.MessageID, m.Exchange, m.RoutingKey, r.properties, r.headers, append([]byte{}, m.Body...))
	}
	_, err := tx.Exec(`INSERT INTO {messages} (due, retry_at, okey, uniq, message_id, exchange, routing_key, properties, headers, body, attempts, error) VALUES `+strings.Join(values, ", "), args...)
	return err
}

// due returns the expression for the time at which a message is due; see dueArgs.
func (b *Box) due(at, delay int) string {
	first, later := b.integer(fmt.Sprintf("$%d", at)), b.clock()+" + "+b.integer(fmt.Sprintf("$%d", delay))
	return "CASE WHEN " + first + " > " + later + " THEN " + first + " ELSE " + later + " END"
}

// lockKeys locks the keys of rows, so that no other transaction inserts rows with these keys before the end of this transaction.
func (b *Box) lockKeys(tx runner, rows []row) error {
	if b.cfg.Dialect == SQLite { // one transaction writes at a time
		return nil
	}
	var locks []int
	for _, r := range rows {
		if r.of.Key != "" {
			locks = append(locks, int(hash(r.of.Key)%keyLocks))
		}
	}
	slices.Sort(locks)
	for _, n := range slices.Compact(locks) {
		var err error
		if b.cfg.Dialect == MySQL {
			err = tx.Row(`SELECT id FROM {keylocks} WHERE id = $1 FOR UPDATE`, n).Scan(&n)
		} else {
			_, err = tx.Exec(`SELECT pg_advisory_xact_lock($1, $2)`, int32(hash(b.cfg.Prefix)), n)
		}
		if err != nil {
			return fmt.Errorf("cannot lock a key: %w", err)
		}
	}
	return nil
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

// claimUnique takes the unique keys of rows, and returns the rows without duplicates.
func (b *Box) claimUnique(tx runner, rows []row) ([]row, error) {
	var claims []row
	for _, r := range rows {
		if r.of.Unique != "" {
			claims = append(claims, r)
		}
	}
	slices.SortStableFunc(claims, func(x, y row) int { return cmp.Compare(x.of.Unique, y.of.Unique) })
	for _, r := range claims {
		if err := b.claim(tx, r); err != nil {
			return nil, fmt.Errorf("cannot take unique key %q: %w", r.of.Unique, err)
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.of.Duplicate }), nil
}

// claim takes the unique key of a row, or marks the message as a duplicate. The token identifies the row, because messages
// can have equal ids, and a driver of MySQL can report an unchanged row as changed.
func (b *Box) claim(tx runner, r row) error {
	m := r.of
	at, delay := m.dueArgs()
	until := b.due(3, 4) + " + " + b.integer("$5")
	const columns = ` (ukey, token, message_id, until) VALUES ($1, $2, $6, `
	statement := `INSERT INTO {uniq} AS u` + columns + until + `) ON CONFLICT (ukey) DO UPDATE SET token = excluded.token, message_id = excluded.message_id,
		until = excluded.until WHERE u.until <= ` + b.clock()
	if b.cfg.Dialect == MySQL {
		free := `until <= ` + b.clock() + `, VALUES`
		statement = `INSERT INTO {uniq}` + columns + until + `) ON DUPLICATE KEY UPDATE token = IF(` + free + `(token), token),
			message_id = IF(` + free + `(message_id), message_id), until = IF(` + free + `(until), until)` // until is last, because the others compare it
	}
	window := max(1, m.UniqueFor.Milliseconds())
	if _, err := tx.Exec(statement, m.Unique, r.token, at, delay, window, m.MessageID); err != nil {
		return err
	}
	var token, id string
	query := `SELECT token, message_id FROM {uniq} WHERE ukey = $1`
	if b.cfg.Dialect == MySQL {
		query += ` FOR UPDATE` // reads the row as it is, and not as it was at the start of the transaction
	}
	err := tx.Row(query, m.Unique).Scan(&token, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("row not found after its insertion")
	}
	if err == nil && token != r.token {
		m.Duplicate, m.MessageID = true, id
	}
	return err
}
