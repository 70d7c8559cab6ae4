package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Table is a table of another program, in the database of the Box. Each row that is committed becomes a message: the relay with
// the lease moves it to the Box in one transaction, so it is published at least once, always with the same MessageID. Rows
// move in the order of their ids, except that a row which is committed late moves when it is committed. A row that cannot be a
// message, or that another transaction locks, stays in the table, and does not hold the others; the relay logs the error once,
// and tries again.
//
// The relay needs only the permissions SELECT and DELETE for the table. In MySQL, the engine of the table must have transactions, as InnoDB
// has. The names are case-sensitive, and must not be those of tables of a Box.
type Table struct {
	// Name is the name of the table, after an optional schema and a dot.
	Name string

	// IDColumn is the column with the id: a unique integer with an index. Default: "id".
	IDColumn string

	// BodyColumn is the column with the body: text, JSON or bytes. Default: the body is the row, as a JSON object.
	BodyColumn string

	// Message contains the other fields of the messages. Its Body and MessageID must be empty.
	Message reprise.Message

	// Key is Message.Key of the messages. Default: no order after a failure.
	Key string

	// These optional columns replace Exchange and RoutingKey of Message, and Key, if they are not NULL, and contain the
	// MessageID. The default MessageID is random, because databases can use the id of a deleted row again.
	ExchangeColumn, RoutingKeyColumn, KeyColumn, MessageIDColumn string
}

func (t Table) id() string { return cmp.Or(t.IDColumn, "id") }

var identifier = regexp.MustCompile(`^[\pL_][\pL\pN_]{0,62}$`)

// Validate reports missing and invalid settings, except of the Message.
func (t Table) Validate() error {
	var errs []error
	schema, name, found := strings.Cut(t.Name, ".")
	if !found {
		schema, name = "x", t.Name
	}
	if !identifier.MatchString(schema) || !identifier.MatchString(name) {
		errs = append(errs, fmt.Errorf("outbox: Table.Name must be at most 63 letters, digits and underscores, after an optional schema and a dot: got %q", t.Name))
	}
	for _, c := range [][2]string{
		{"IDColumn", t.IDColumn},
		{"BodyColumn", t.BodyColumn},
		{"ExchangeColumn", t.ExchangeColumn},
		{"RoutingKeyColumn", t.RoutingKeyColumn},
		{"KeyColumn", t.KeyColumn},
		{"MessageIDColumn", t.MessageIDColumn},
	} {
		if c[1] != "" && !identifier.MatchString(c[1]) {
			errs = append(errs, fmt.Errorf("outbox: Table.%s of %q must be at most 63 letters, digits and underscores: got %q", c[0], t.Name, c[1]))
		}
	}
	if t.Message.MessageID != "" || len(t.Message.Body) > 0 {
		errs = append(errs, fmt.Errorf("outbox: Table.Message of %q must have no Body and no MessageID", t.Name))
	}
	return errors.Join(errs...)
}

// source is a table whose rows a relay moves.
type source struct {
	Table
	relay   *Relay
	invalid map[int64]bool // the rows whose errors are logged
}

// checkTables reports tables of the box, whose rows would move without end.
func (b *Box) checkTables(tables []Table) error {
	var errs []error
	for _, t := range tables {
		if short := b.cfg.Prefix[strings.LastIndex(b.cfg.Prefix, ".")+1:]; strings.HasPrefix(strings.ToLower(t.Name[strings.LastIndex(t.Name, ".")+1:]), short) {
			errs = append(errs, fmt.Errorf("outbox: Table.Name must not begin with the prefix of the box: got %q", t.Name))
		}
	}
	return errors.Join(errs...)
}

// follow moves the rows of a table until ctx is done. Each table has its own goroutine, so that its locks hold nothing else.
func (s *source) follow(ctx context.Context) {
	for pause, failures := s.relay.cfg.Poll, 0; retry.Sleep(ctx, pause) == nil; {
		err := s.pass(ctx)
		if err == nil || ctx.Err() != nil {
			pause, failures = s.relay.cfg.Poll, 0
			continue
		}
		pause = min(lastSuspension, backoff(failures))
		failures++
		s.relay.log.Error("outbox table not read", "table", s.Name, "error", err, "next_try", pause)
	}
}

// pass moves all rows that can be moved. It begins with the first row, because a transaction with lower ids can commit after one with
// higher ids.
func (s *source) pass(ctx context.Context) error {
	body, any, err := s.body(ctx)
	if err != nil || !any {
		return err
	}
	bad := map[int64]bool{}
	reject := func(id int64, err error) {
		if bad[id] = true; !s.invalid[id] {
			s.relay.log.Error("outbox table row not published", "table", s.Name, "id", id, "error", err)
		}
	}
	for after, limit := int64(math.MinInt64), s.relay.cfg.Batch; s.relay.leased(); {
		var c chunk
		err := s.relay.box.db.Transaction(ctx, s.beginning(), func(tx *sqlkit.Tx) (err error) {
			if c, err = s.read(ctx, tx, body, after, limit); err == nil {
				err = s.move(tx, c)
			}
			return err
		})
		switch {
		case err == nil:
			for id, err := range c.invalid {
				reject(id, err)
			}
			if len(c.ids) > 0 {
				s.relay.box.signal()
			}
			if after = c.last; !c.more {
				s.invalid = bad
				return nil
			}
			limit = min(2*limit, s.relay.cfg.Batch)
		case errors.Is(err, sqlkit.ErrUnavailable) || ctx.Err() != nil || c.last == math.MinInt64:
			return err
		case limit > 1: // find the row that has failed
			limit = 1
		default:
			reject(c.last, err)
			after = c.last
		}
	}
	return nil
}

// beginning returns the statements that begin a transaction. In PostgreSQL, the deletion of a row fails if another transaction has changed
// it since it was read, and no permission to lock rows is necessary.
func (s *source) beginning() []string {
	d := s.relay.box.cfg.Dialect
	if d == PostgreSQL {
		return []string{sqlkit.Begin + "; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = '1s'"}
	}
	return d.Writing()
}

// chunk is a number of consecutive rows.
type chunk struct {
	ids     []int64 // of rows
	rows    []row
	invalid map[int64]error
	last    int64
	more    bool
}

// read reads the first rows after an id. In MySQL, it locks them, and skips those of transactions that are not committed.
func (s *source) read(ctx context.Context, tx *sqlkit.Tx, body string, after int64, limit int) (chunk, error) {
	b := s.relay.box
	id := b.column(s.id())
	query := fmt.Sprintf(`%s WHERE %s > %s ORDER BY %s LIMIT %d`, b.selectRows(s.Table, body), id, b.integer("$1"), id, limit)
	if b.cfg.Dialect == MySQL {
		query += " FOR UPDATE SKIP LOCKED"
	}
	c := chunk{last: math.MinInt64, invalid: map[int64]error{}}
	n, size := 0, 0
	for rows, err := range tx.Rows(query, after) {
		m := &Message{Message: s.Message, Key: s.Key}
		var exchange, routingKey, key sql.NullString
		if err == nil {
			err = rows.Scan(&c.last, &m.Body, &exchange, &routingKey, &key, sqlkit.Text(&m.MessageID))
		}
		if err != nil {
			return c, err
		}
		n++
		for into, v := range map[*string]sql.NullString{&m.Exchange: exchange, &m.RoutingKey: routingKey, &m.Key: key} {
			if v.Valid {
				*into = v.String
			}
		}
		if s.BodyColumn == "" {
			m.ContentType = cmp.Or(m.ContentType, "application/json")
		}
		if encoded, err := b.encode(ctx, m); err != nil {
			c.invalid[c.last] = err
		} else {
			c.ids, c.rows = append(c.ids, c.last), append(c.rows, encoded)
		}
		if size += len(m.Body); size >= readLimit {
			c.more = true
			return c, nil
		}
	}
	c.more = n == limit
	return c, nil
}

// selectRows returns the query for the rows of a table, without a condition. In SQLite, a name that is not a column would be a text.
func (b *Box) selectRows(t Table, body string) string {
	columns := []string{b.column(t.id()), body}
	for _, name := range []string{t.ExchangeColumn, t.RoutingKeyColumn, t.KeyColumn, t.MessageIDColumn} {
		if name == "" {
			columns = append(columns, "NULL")
		} else {
			columns = append(columns, b.column(name))
		}
	}
	return `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + b.quote(t.Name) + ` AS reprise_row`
}

// column returns a column of the rows of selectRows.
func (b *Box) column(name string) string { return "reprise_row." + b.quote(name) }

// move inserts the rows into the box, and deletes them from the table.
func (s *source) move(tx *sqlkit.Tx, c chunk) error {
	if len(c.ids) == 0 {
		return nil
	}
	b := s.relay.box
	if err := b.insert(own{tx}, c.rows); err != nil {
		return fmt.Errorf("cannot insert messages: %w", err)
	}
	lists := [][]int64{c.ids}
	if b.cfg.Dialect == MySQL { // a list can be searched by a scan, which waits for rows that are not committed
		lists = slices.Collect(slices.Chunk(c.ids, 1))
	}
	deleted := int64(0)
	for _, ids := range lists {
		condition, args := b.among(b.quote(s.id()), "$1", ids)
		n, err := tx.Exec(`DELETE FROM `+b.quote(s.Name)+` WHERE `+condition, args...)
		if err != nil {
			return fmt.Errorf("cannot delete rows: %w", err)
		}
		deleted += n
	}
	if deleted != int64(len(c.ids)) {
		return fmt.Errorf("cannot delete rows: the database deleted %d of %d (are the ids unique?)", deleted, len(c.ids))
	}
	return nil
}

// body returns the expression for the body, and whether the table has rows.
func (s *source) body(ctx context.Context) (expression string, any bool, err error) {
	b := s.relay.box
	for row, err := range b.db.Rows(ctx, `SELECT * FROM `+b.quote(s.Name)+` LIMIT 1`) {
		if err != nil {
			return "", false, ofTable(err)
		}
		switch {
		case s.BodyColumn != "":
			return b.column(s.BodyColumn), true, nil
		case b.cfg.Dialect == PostgreSQL:
			return "CAST(row_to_json(reprise_row) AS TEXT)", true, nil
		}
		columns, err := row.ColumnTypes()
		if err != nil {
			return "", false, err
		}
		expression, err = b.object(columns)
		return expression, true, err
	}
	return "", false, nil
}

// object returns the expression for a JSON object with columns. Bytes are hexadecimal.
func (b *Box) object(columns []*sql.ColumnType) (string, error) {
	var pairs []string
	for _, c := range columns {
		if !identifier.MatchString(c.Name()) {
			return "", fmt.Errorf("name of column %q must be at most 63 letters, digits and underscores (or set BodyColumn)", c.Name())
		}
		value, kind := b.quote(c.Name()), c.DatabaseTypeName()
		switch {
		case b.cfg.Dialect == SQLite && kind == "JSON":
			value = fmt.Sprintf("CASE WHEN typeof(%s) = 'blob' THEN hex(%[1]s) WHEN json_valid(%[1]s) THEN json(%[1]s) ELSE %[1]s END", value)
		case b.cfg.Dialect == SQLite:
			value = fmt.Sprintf("CASE typeof(%s) WHEN 'blob' THEN hex(%[1]s) ELSE %[1]s END", value)
		case strings.HasSuffix(kind, "BLOB") || strings.HasSuffix(kind, "BINARY"):
			value = "HEX(" + value + ")"
		}
		pairs = append(pairs, "'"+c.Name()+"', "+value)
	}
	return "json_object(" + strings.Join(pairs, ", ") + ")", nil
}

// quote quotes a name, with its schema, which Validate has checked.
func (b *Box) quote(name string) string {
	q := `"`
	if b.cfg.Dialect == MySQL {
		q = "`"
	}
	return q + strings.ReplaceAll(name, ".", q+"."+q) + q
}
