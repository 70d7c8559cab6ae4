// Package sqlkit is what the stores in databases have in common: transactions,
// rows as a sequence, and times as numbers.
package sqlkit

import (
	"database/sql"
	"iter"
	"time"
)

// Rows yields the rows of a query, and closes it. Its error, if there is one, comes
// last.
func Rows(query func() (*sql.Rows, error)) iter.Seq2[*sql.Rows, error] {
	return func(yield func(*sql.Rows, error) bool) {
		rows, err := query()
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			if !yield(rows, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// Millis are milliseconds since 1970; 0 is no time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// TimeOf is the inverse of Millis, in UTC.
func TimeOf(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds).UTC()
}
