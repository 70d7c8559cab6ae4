package store

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Dialect is the SQL dialect of a database.
type Dialect = sqlkit.Dialect

// The supported dialects. Any database/sql driver that supports numbered arguments works.
const (
	PostgreSQL = sqlkit.PostgreSQL // 11 or later
	SQLite     = sqlkit.SQLite     // 3.43 or later, with FTS5
)

// dialect generates the SQL that differs between the dialects.
type dialect struct{ Dialect }

// begin returns the first statements of a write transaction. Write transactions run one at a time, so that they
// neither interleave nor conflict.
func (d dialect) begin(prefix string, long bool) []string {
	h := fnv.New64a()
	h.Write([]byte("reprise/failed/" + prefix))
	// The key of the lock contains the schema, because the search path selects the schema of the tables.
	begin := d.WritingAlone(fmt.Sprintf("%d # hashtext(current_schema())::bigint", int64(h.Sum64()>>1)))
	if long && d.Dialect == PostgreSQL {
		begin = append(begin, sqlkit.Longer)
	}
	return begin
}

// along returns a WHERE condition and ORDER BY columns that let a query read one index in order. The condition requires
// that columns of {message} AS m have the given values, and that from <= pos < before.
//
// For PostgreSQL, the condition compares the last column and the position as a row, so that only the index on the given
// columns and the position provides the order. Otherwise the planner may choose another index with the same order and
// scan the messages of all other queues or groups, which is slow if few messages are selected. The values of the other
// columns are in subqueries, so that the planner does not know them. Otherwise the planner would use the partial index
// of the messages that are being replayed, and sort all of them.
func (d dialect) along(columns []equal, from, before int64) (where string, order []string) {
	position := fmt.Sprintf("m.pos >= %d AND m.pos < %d", from, before)
	order = []string{"m.pos"}
	var conditions []string
	for i, c := range columns {
		switch {
		case d.Dialect == SQLite:
			conditions = append(conditions, c.column+" = "+c.value)
		case i < len(columns)-1:
			conditions = append(conditions, fmt.Sprintf("%s = (SELECT %s)", c.column, c.value))
		default:
			position = fmt.Sprintf("(%s, m.pos) >= (%s, %d) AND (%[1]s, m.pos) < (%[2]s, %[4]d)", c.column, c.value, from, before)
			order = []string{c.column, "m.pos"}
		}
	}
	return strings.Join(append(conditions, position), " AND "), order
}

// equal is the condition that a column equals a value.
type equal struct{ column, value string }

// in returns the condition that column is one of the numbers in arg (see list for the format). PostgreSQL evaluates a
// subquery once. Without it, a plan that does not use an index would parse arg for each row, for example before the first
// ANALYZE.
func (d dialect) in(column, arg string) string {
	if d.Dialect == SQLite {
		return column + " IN (SELECT value FROM json_each(" + arg + "))"
	}
	return column + " = ANY(ARRAY(SELECT unnest(CAST(CAST(" + arg + " AS TEXT) AS BIGINT[]))))"
}

func list[N ~int64](d dialect, numbers []N) string {
	open, end := "[", "]"
	if d.Dialect == PostgreSQL {
		open, end = "{", "}"
	}
	b := []byte(open)
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, int64(n))
	}
	return string(append(b, end...))
}

// part returns the condition that a binary column contains the bytes of arg.
func (d dialect) part(column, arg string) string {
	if d.Dialect == SQLite {
		return "instr(" + column + ", " + arg + ") > 0"
	}
	return "position(CAST(" + arg + " AS BYTEA) IN " + column + ") > 0"
}

// found returns the condition that a row of {search} AS s contains all terms. Terms consist of letters, digits and the
// character mark, so they need quotes but no escaping.
func (d dialect) found(terms []string) string {
	if d.Dialect == SQLite {
		return `s.{search} MATCH '"` + strings.Join(terms, `" AND "`) + `"'`
	}
	return `s.words @@ ` + tsquery(terms)
}

func tsquery(terms []string) string {
	return `CAST('''` + strings.Join(terms, `'' & ''`) + `''' AS TSQUERY)`
}

// foundByIndex returns the condition of found for PostgreSQL, in a form that hides the frequency of the terms from the
// planner. PostgreSQL then uses the index of words and never scans the whole table, even if two words are frequent but
// never occur in the same message.
func (d dialect) foundByIndex(terms []string) string {
	return `s.words @@ (SELECT ` + tsquery(terms) + `)`
}

// indexed returns the value of {search}.words for the terms in arg.
func (d dialect) indexed(arg string) string {
	if d.Dialect == SQLite {
		return arg
	}
	return "array_to_tsvector(string_to_array(" + arg + ", ' '))"
}

// pos returns the column of {search} that corresponds to {message}.pos.
func (d dialect) pos() string {
	if d.Dialect == SQLite {
		return "s.rowid"
	}
	return "s.pos"
}
