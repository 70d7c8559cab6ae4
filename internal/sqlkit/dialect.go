package sqlkit

import (
	"fmt"
	"strings"
)

// Dialect is the SQL dialect of a database.
type Dialect int

// The supported dialects.
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

// Validate returns an error for an unsupported dialect.
func (d Dialect) Validate() error {
	if d != PostgreSQL && d != SQLite {
		return fmt.Errorf("Dialect %d not found (use PostgreSQL or SQLite)", d)
	}
	return nil
}

// Args converts the arguments of a statement ($1, $2, …) to the syntax of the dialect.
func (d Dialect) Args(statement string) string {
	if d == SQLite {
		return strings.ReplaceAll(statement, "$", "?")
	}
	return statement
}

// Types converts the types of a schema, such as BYTES and BIGINT, to the types of the dialect.
func (d Dialect) Types(schema string) string {
	if d == SQLite {
		return strings.NewReplacer("BYTES", "BLOB", "BIGINT", "INTEGER", "SMALLINT", "INTEGER").Replace(schema)
	}
	return strings.NewReplacer("BYTES", "BYTEA", " WITHOUT ROWID", "").Replace(schema)
}

// Writing returns the statements that begin a transaction with writes.
func (d Dialect) Writing() []string {
	if d == SQLite {
		return []string{Wait, Immediate}
	}
	return []string{Begin}
}

// WritingAlone returns the statements that begin a transaction with writes, in PostgreSQL under an advisory lock.
// Transactions with the same lock number run one after the other.
func (d Dialect) WritingAlone(lock string) []string {
	if d == SQLite {
		return d.Writing()
	}
	return append(d.Writing(), "SELECT pg_advisory_xact_lock("+lock+")")
}
