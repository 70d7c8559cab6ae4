package sqlkit

import (
	"context"
	"database/sql"
	"encoding/json"
	"iter"
	"time"
)

// Row is the row of a query. Scan must be called.
type Row struct {
	row    *sql.Row
	err    error
	cancel context.CancelFunc
	begun  time.Time
}

// Scan is that of sql.Row.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.cancel()
	return explain(r.row.Scan(dest...), r.begun)
}

// Row queries one row.
func (d *DB) Row(ctx context.Context, query string, args ...any) *Row {
	if err := d.file.check(false); err != nil {
		return &Row{err: err}
	}
	begun := time.Now()
	ctx, cancel := limited(ctx, ReadLimit)
	return &Row{row: d.pool.QueryRowContext(ctx, d.sql(query), args...), cancel: cancel, begun: begun}
}

// Rows are the rows of a query, which is made when they are scanned.
type Rows func(yield func(*sql.Rows, error) bool)

// Scan copies one row after the other into dest, as sql.Rows.Scan does, and yields nil for each.
// If there is an error, it comes last.
func (r Rows) Scan(dest ...any) iter.Seq[error] {
	return func(yield func(error) bool) {
		for row, err := range r {
			if err == nil {
				err = row.Scan(dest...)
			}
			if !yield(err) || err != nil {
				return
			}
		}
	}
}

// Rows queries any number of rows.
func (d *DB) Rows(ctx context.Context, query string, args ...any) Rows {
	return func(yield func(*sql.Rows, error) bool) {
		if err := d.file.check(false); err != nil {
			yield(nil, err)
			return
		}
		begun := time.Now()
		ctx, cancel := limited(ctx, ReadLimit)
		defer cancel()
		for row, err := range rowsOf(func() (*sql.Rows, error) { return d.pool.QueryContext(ctx, d.sql(query), args...) }) {
			if !yield(row, explain(err, begun)) {
				return
			}
		}
	}
}

func rowsOf(query func() (*sql.Rows, error)) Rows {
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

// column is where a value goes that is stored in another form.
type column[T any] func(T) error

// Scan implements [sql.Scanner].
func (c column[T]) Scan(stored any) error {
	var v sql.Null[T]
	if err := v.Scan(stored); err != nil {
		return err
	}
	return c(v.V)
}

// Time returns where to scan milliseconds since 1970: see Millis.
func Time(t *time.Time) sql.Scanner {
	return column[int64](func(n int64) error { *t = TimeOf(n); return nil })
}

// Text returns where to scan text that may be NULL, which is "".
func Text(s *string) sql.Scanner {
	return column[string](func(text string) error { *s = text; return nil })
}

// JSON returns where to scan JSON of a T.
func JSON[T any](v *T) sql.Scanner {
	return column[[]byte](func(b []byte) error {
		*v = *new(T) // or a map would keep what it has
		return json.Unmarshal(b, v)
	})
}
