package sqlkit

import (
	"fmt"
	"strings"
)

// Dialect is the kind of SQL that a database speaks.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = iota + 1
	SQLite
)

func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// Validate reports a dialect that is none.
func (d Dialect) Validate() error {
	if d != PostgreSQL && d != SQLite {
		return fmt.Errorf("Dialect %d not found (use PostgreSQL or SQLite)", d)
	}
	return nil
}

// Args writes the arguments of a statement, $1 and so on, as the database has them.
func (d Dialect) Args(statement string) string {
	if d == SQLite {
		return strings.ReplaceAll(statement, "$", "?")
	}
	return statement
}

// Types replaces the types of a schema: BYTES and BIGINT.
func (d Dialect) Types(schema string) string {
	if d == SQLite {
		return strings.NewReplacer("BYTES", "BLOB", "BIGINT", "INTEGER", "SMALLINT", "INTEGER").Replace(schema)
	}
	return strings.NewReplacer("BYTES", "BYTEA", " WITHOUT ROWID", "").Replace(schema)
}

// Writing is the begin of a transaction that writes.
func (d Dialect) Writing() []string {
	if d == SQLite {
		return []string{Wait, Immediate}
	}
	return []string{Begin}
}

// WritingAlone is Writing for transactions that wait for each other: those with the same
// expression for the number of the lock.
func (d Dialect) WritingAlone(lock string) []string {
	if d == SQLite {
		return d.Writing()
	}
	return append(d.Writing(), "SELECT pg_advisory_xact_lock("+lock+")")
}
