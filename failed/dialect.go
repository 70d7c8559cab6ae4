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

// reading is what a transaction begins with that reads pages.
//
// A page is to be as quick as its indexes let it be, whatever PostgreSQL believes of how
// frequent a word or a state is: that is old where much has arrived since, and wrong
// where one thing goes with another. So each query is written for one index, and a
// table is never read whole, nor sorted. To compile such a query takes longer than to run it.
func (d dialect) reading() []string {
	if d.Dialect == SQLite {
		return []string{"BEGIN"}
	}
	return []string{sqlkit.BeginReading, "SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_bitmapscan', 'off', TRUE), set_config('enable_sort', 'off', TRUE), set_config('jit', 'off', TRUE), set_config('work_mem', '32MB', TRUE)"}
}

// bitmaps has PostgreSQL ask its search index for all that it finds, and indexes has it
// go along the others again.
func (d dialect) bitmaps() string {
	if d.Dialect == SQLite {
		return ""
	}
	return "SELECT set_config('enable_bitmapscan', 'on', TRUE), set_config('enable_indexscan', 'off', TRUE)"
}

func (d dialect) indexes() string {
	if d.Dialect == SQLite {
		return ""
	}
	return "SELECT set_config('enable_bitmapscan', 'off', TRUE), set_config('enable_indexscan', 'on', TRUE)"
}

// along is a condition that a column of {message} AS m is value, and that its position is
// from a number on and before another; and the columns that this is ordered by.
//
// To PostgreSQL it is written so that no index has that order but the one of the column
// and the position. Of those that could have it, it takes the wrong one where a queue or
// a group has not been failing for long, and walks past all the others.
func (d dialect) along(column, value string, from, before int64) (where string, order []string) {
	if d.Dialect == SQLite {
		return fmt.Sprintf("%s = %s AND m.pos >= %d AND m.pos < %d", column, value, from, before), []string{"m.pos"}
	}
	return fmt.Sprintf("(%s, m.pos) >= (%s, %d) AND (%[1]s, m.pos) < (%[2]s, %[4]d)", column, value, from, before), []string{column, "m.pos"}
}

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
// letters, digits and mark, so that quoting is all they need. They are written into
// the statement, since PostgreSQL plans a search for a frequent word in another way
// than that for a rare one.
func (d dialect) found(terms []string) string {
	if d.Dialect == SQLite {
		return `s.{search} MATCH '"` + strings.Join(terms, `" AND "`) + `"'`
	}
	return `s.words @@ CAST('''` + strings.Join(terms, `'' & ''`) + `''' AS TSQUERY)`
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
