package failed

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Dialect is the kind of SQL that a database speaks.
type Dialect = sqlkit.Dialect

// The dialects. Any database/sql driver of the database will do that takes
// numbered arguments.
const (
	PostgreSQL = sqlkit.PostgreSQL // 11 or later
	SQLite     = sqlkit.SQLite     // 3.43 or later, with FTS5
)

// dialect writes what the databases have in different ways.
type dialect struct{ Dialect }

var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// begin is what a transaction that writes begins with: there is one at a time, so
// that none sees half of another, and none is in the way of another.
func (d dialect) begin(prefix string, long bool) []string {
	h := fnv.New64a()
	h.Write([]byte("reprise/failed/" + prefix))
	// Of one schema, since that is what the search path leads to.
	begin := d.WritingAlone(fmt.Sprintf("%d # hashtext(current_schema())::bigint", int64(h.Sum64()>>1)))
	if long && d.Dialect == PostgreSQL {
		begin = append(begin, sqlkit.Longer)
	}
	return begin
}

// along is a condition that columns of {message} AS m have values, and that its position is
// from a number on and before another; and the columns that this is ordered by.
//
// To PostgreSQL the last column is written so that no index has that order but the one of the columns
// and the position. Of those that could have it, it takes the wrong one where a queue or
// a group has not been failing for long, and walks past all the others. The values of the columns before are
// hidden from the planner: it would take the partial index of what is being replayed, and sort all of it.
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

// equal is a column and its value.
type equal struct{ column, value string }

// in is a condition that a column is one of the numbers of an argument, which list
// writes.
func (d dialect) in(column, arg string) string {
	if d.Dialect == SQLite {
		return column + " IN (SELECT value FROM json_each(" + arg + "))"
	}
	return column + " = ANY(CAST(CAST(" + arg + " AS TEXT) AS BIGINT[]))"
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

// part is a condition that a column of bytes has those of an argument in it.
func (d dialect) part(column, arg string) string {
	if d.Dialect == SQLite {
		return "instr(" + column + ", " + arg + ") > 0"
	}
	return "position(CAST(" + arg + " AS BYTEA) IN " + column + ") > 0"
}

// found is a condition that a row of {search} AS s has all of the terms. They are
// letters, digits and mark, so that quoting is all they need.
func (d dialect) found(terms []string) string {
	if d.Dialect == SQLite {
		return `s.{search} MATCH '"` + strings.Join(terms, `" AND "`) + `"'`
	}
	return `s.words @@ ` + tsquery(terms)
}

func tsquery(terms []string) string {
	return `CAST('''` + strings.Join(terms, `'' & ''`) + `''' AS TSQUERY)`
}

// foundByIndex is found for PostgreSQL, in a form of which the planner does not know how
// frequent the terms are. It uses the index of words then, and never reads the table whole: two words
// may be frequent, each in other messages.
func (d dialect) foundByIndex(terms []string) string {
	return `s.words @@ (SELECT ` + tsquery(terms) + `)`
}

// indexed is the value of {search}.words that has the terms of an argument.
func (d dialect) indexed(arg string) string {
	if d.Dialect == SQLite {
		return arg
	}
	return "array_to_tsvector(string_to_array(" + arg + ", ' '))"
}

// pos is the column of {search} that is {message}.pos.
func (d dialect) pos() string {
	if d.Dialect == SQLite {
		return "s.rowid"
	}
	return "s.pos"
}
