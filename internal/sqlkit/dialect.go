package sqlkit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Dialect is the SQL dialect of a database.
type Dialect int

// The supported dialects.
const (
	PostgreSQL Dialect = iota + 1
	SQLite
	MySQL // also MariaDB
)

func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	case MySQL:
		return "MySQL"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// Validate returns an error unless the caller supports the dialect. Without arguments, it supports PostgreSQL and SQLite.
func (d Dialect) Validate(supported ...Dialect) error {
	if len(supported) == 0 {
		supported = []Dialect{PostgreSQL, SQLite}
	}
	if slices.Contains(supported, d) {
		return nil
	}
	var names []string
	for _, s := range supported {
		names = append(names, s.String())
	}
	return fmt.Errorf("Dialect %d not found (use %s)", d, strings.Join(names, " or "))
}

// Args converts the arguments of a statement ($1, $2, …) to the syntax of PostgreSQL or SQLite; see Bind.
func (d Dialect) Args(statement string) string {
	if d == SQLite {
		return strings.ReplaceAll(statement, "$", "?")
	}
	return statement
}

var (
	numbered  = regexp.MustCompile(`\$\d+`)
	doNothing = regexp.MustCompile(`ON CONFLICT \((\w+)[^)]*\) DO NOTHING`)
)

// Bind converts a statement with the arguments $1, $2, … to the syntax of the dialect. In MySQL, whose arguments have no
// numbers, it repeats an argument that the statement uses more than once. It also converts ON CONFLICT … DO NOTHING.
func (d Dialect) Bind(statement string, args []any) (string, []any) {
	if d != MySQL {
		return d.Args(statement), args
	}
	var bound []any
	statement = numbered.ReplaceAllStringFunc(statement, func(name string) string {
		if n, err := strconv.Atoi(name[1:]); err == nil && n <= len(args) {
			bound = append(bound, args[n-1])
		}
		return "?"
	})
	return doNothing.ReplaceAllString(statement, "ON DUPLICATE KEY UPDATE $1 = $1"), bound
}

// Clock returns the SQL expression for the clock of the database, in milliseconds since 1970. Unlike now(), it advances within
// a transaction.
func (d Dialect) Clock() string {
	switch d {
	case SQLite:
		return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
	case MySQL:
		return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
	}
	return "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"
}

// Types converts the types of a schema, such as BYTES and BIGINT, to the types of the dialect.
func (d Dialect) Types(schema string) string {
	if d == SQLite {
		return strings.NewReplacer("BYTES", "BLOB", "BIGINT", "INTEGER", "SMALLINT", "INTEGER").Replace(schema)
	}
	if d == MySQL {
		return strings.NewReplacer("BYTES", "LONGBLOB", " WITHOUT ROWID", "").Replace(schema)
	}
	return strings.NewReplacer("BYTES", "BYTEA", " WITHOUT ROWID", "").Replace(schema)
}

// Writing returns the statements that begin a transaction with writes.
func (d Dialect) Writing() []string {
	if d == SQLite {
		return []string{Wait, Immediate}
	}
	if d == MySQL {
		return []string{Committed, StartTransaction}
	}
	return []string{Begin}
}

// WritingAlone returns the statements that begin a transaction with writes, in PostgreSQL under an advisory lock.
// Transactions with the same lock number run one after the other.
func (d Dialect) WritingAlone(lock string) []string {
	if d != PostgreSQL {
		return d.Writing()
	}
	return append(d.Writing(), "SELECT pg_advisory_xact_lock("+lock+")")
}
