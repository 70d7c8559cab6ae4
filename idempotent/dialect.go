package idempotent

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Dialect is the SQL dialect of a database.
type Dialect = sqlkit.Dialect

// The supported dialects. Any database/sql driver for the database works.
const (
	PostgreSQL = sqlkit.PostgreSQL // 9.5 or later
	SQLite     = sqlkit.SQLite     // 3.24 or later
	MySQL      = sqlkit.MySQL      // MySQL 8.0 or MariaDB 10.6, or later
)

// Table names leave room for the suffix of the index. PostgreSQL truncates names to 63 bytes, so two longer index names
// could become equal.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,49}\.)?[A-Za-z_][A-Za-z0-9_]{0,49}$`)

func validateTable(d Dialect, name string) error {
	if !tableName.MatchString(name) {
		return fmt.Errorf("idempotent: SQLConfig.Table must be at most 50 letters, digits and underscores, and not begin with a digit: got %q (empty means %s)", name, DefaultTable)
	}
	if d == SQLite && strings.Contains(name, ".") {
		return fmt.Errorf("idempotent: SQLConfig.Table must not have a schema with SQLite: got %q (remove the prefix)", name)
	}
	return nil
}

// quote returns a valid table name as a quoted identifier.
func quote(d Dialect, name string) string {
	q := `"`
	if d == MySQL {
		q = "`"
	}
	return q + strings.ReplaceAll(name, ".", q+"."+q) + q
}

// schemaOf returns the statements that create a table and its index. The name of the index begins with the name of the
// table, without the schema.
func schemaOf(d Dialect, table string) []string {
	text := "TEXT"
	if d == PostgreSQL {
		text = `TEXT COLLATE "C"` // keys are equal only if their bytes are equal
	}
	if d == MySQL { // the default collations of texts ignore case and trailing spaces
		return []string{`CREATE TABLE IF NOT EXISTS ` + quote(d, table) + " (\n\t`key` VARBINARY(3000) NOT NULL PRIMARY KEY," + `
	token   VARBINARY(255) NOT NULL,
	done    BOOLEAN NOT NULL,
	expires BIGINT NOT NULL,
	INDEX expires (expires)
)`}
	}
	index := table[strings.LastIndex(table, ".")+1:] + "_expires"
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + quote(d, table) + ` (
	key     ` + text + ` NOT NULL PRIMARY KEY,
	token   TEXT NOT NULL,    -- of the run that has claimed or completed it
	done    BOOLEAN NOT NULL, -- or claimed
	expires BIGINT NOT NULL   -- end of the lease or the retention, ms since 1970
)`,
		`CREATE INDEX IF NOT EXISTS ` + quote(d, index) + ` ON ` + quote(d, table) + ` (expires)`,
	}
}

// schemaLock is the lock of a transaction that creates the schema. Without the lock, IF NOT EXISTS in PostgreSQL does
// not see an object that another process creates at the same moment, and fails.
const schemaLock = "7310014551870730049"

// statements are the statements of an SQL store. $1, $2, … are the arguments, and NOW is the time.
type statements struct {
	put, read, release, purge string

	owns string // whether put has succeeded; "": the number of changed rows shows it
}

func statementsOf(d Dialect, table, now string) statements {
	if d == MySQL {
		return mysqlStatements(table, now)
	}
	fill := func(s string) string {
		return d.Args(strings.NewReplacer("TABLE", quote(d, table), "NOW", now).Replace(s))
	}
	purge := `DELETE FROM TABLE WHERE key IN (SELECT key FROM TABLE WHERE expires <= NOW LIMIT $1)`
	if d == PostgreSQL {
		// An array makes PostgreSQL run the subquery once. PostgreSQL may run a plain subquery more than once, which
		// would defeat the LIMIT. SKIP LOCKED skips the rows of a concurrent purge.
		purge = `DELETE FROM TABLE WHERE key = ANY(ARRAY(
			SELECT key FROM TABLE WHERE expires <= NOW ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED))`
	}
	return statements{
		// put assigns key $1 to token $2 for $3 ms, as claimed or done ($4). It succeeds if the key is free or belongs
		// to the token. It never changes a key from done to claimed.
		//
		// The statement reads the clock once, so that the comparison and the new row use the same time.
		put: fill(`INSERT INTO TABLE AS t (key, token, done, expires)
			SELECT $1, $2, CAST($4 AS BOOLEAN), c.now + CAST($3 AS BIGINT) FROM (SELECT NOW AS now) AS c WHERE TRUE
			ON CONFLICT (key) DO UPDATE SET token = excluded.token, done = excluded.done, expires = excluded.expires
			WHERE t.expires <= excluded.expires - CAST($3 AS BIGINT)
				OR t.token = excluded.token AND (excluded.done OR NOT t.done)`),
		read:    fill(`SELECT done, expires - NOW FROM TABLE WHERE key = $1`),
		release: fill(`DELETE FROM TABLE WHERE key = $1 AND token = $2 AND NOT done`),
		purge:   fill(purge),
	}
}

// mysqlStatements returns statements with the meaning of statementsOf. MySQL has no WHERE for ON DUPLICATE KEY UPDATE, the number of
// changed rows depends on the client, and a plain SELECT reads the row as it was at the start of the transaction.
func mysqlStatements(table, now string) statements {
	fill := strings.NewReplacer("TABLE", quote(MySQL, table), "KEY", "`key`", "NOW", now,
		"FREE", "(expires <= "+now+" OR token = VALUES(token) AND (VALUES(done) OR NOT done))").Replace
	return statements{
		put: fill(`INSERT INTO TABLE (KEY, token, done, expires) VALUES ($1, $2, $4, NOW + $3)`) + ` ON DUPLICATE KEY UPDATE ` +
			fill(`token = IF(FREE, VALUES(token), token), done = IF(FREE, VALUES(done), done), expires = IF(FREE, VALUES(expires), expires)`), // expires is last, because the others compare it
		owns:    fill(`SELECT count(*) FROM TABLE WHERE KEY = $1 AND token = $2 AND (done = $3 OR done = FALSE)`),
		read:    fill(`SELECT done, expires - NOW FROM TABLE WHERE KEY = $1 LOCK IN SHARE MODE`),
		release: fill(`DELETE FROM TABLE WHERE KEY = $1 AND token = $2 AND NOT done`),
		purge:   fill(`DELETE FROM TABLE WHERE expires <= NOW LIMIT $1`),
	}
}
