package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"iter"
	"time"
)

// Row is the result of a query for one row. The caller must call Scan.
type Row struct {
	row    *sql.Row
	err    error
	cancel context.CancelFunc
	begun  time.Time
}

// Scan copies the row into dest, as sql.Row.Scan does.
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
	query, args = d.Bind(query, args...)
	return &Row{row: d.pool.QueryRowContext(ctx, query, args...), cancel: cancel, begun: begun}
}

// Rows is a sequence of the rows of a query. The query runs when the caller iterates over the sequence.
type Rows func(yield func(*sql.Rows, error) bool)

// Scan copies each row into dest, as sql.Rows.Scan does. It yields nil for each row, and finally the error, if any.
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
		queryContext := d.pool.QueryContext
		if isLong(ctx) { // it also fails after ReadLimit if the database does not respond at all
			connecting, connected := context.WithTimeout(ctx, ReadLimit)
			defer connected()
			conn, err := d.pool.Conn(connecting)
			if err != nil {
				yield(nil, explain(err, begun))
				return
			}
			defer conn.Close()
			queryContext = conn.QueryContext
		}
		ctx, cancel := limited(ctx, ReadLimit)
		defer cancel()
		query, args := d.Bind(query, args...)
		for row, err := range rowsOf(func() (*sql.Rows, error) { return queryContext(ctx, query, args...) }) {
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

// Millis returns t in milliseconds since 1970. It returns 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// The times that RFC 3339 and JSON can express, in milliseconds since 1970.
var earliest, latest = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1

// TimeOf is the inverse of Millis, in UTC. It limits the result to the years 0 to 9999.
func TimeOf(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(max(milliseconds, earliest), latest)).UTC()
}

// column is a Scanner that converts the stored value.
type column[T any] func(T) error

// Scan implements [sql.Scanner].
func (c column[T]) Scan(stored any) error {
	var v sql.Null[T]
	if err := v.Scan(stored); err != nil {
		return err
	}
	return c(v.V)
}

// Time returns a Scanner that converts milliseconds since 1970 to a time and stores it in *t; see Millis.
func Time(t *time.Time) sql.Scanner {
	return column[int64](func(n int64) error { *t = TimeOf(n); return nil })
}

// Text returns a Scanner for a nullable text. It converts NULL to "".
func Text(s *string) sql.Scanner {
	return column[string](func(text string) error { *s = text; return nil })
}

// JSON returns a Scanner that decodes JSON into v.
func JSON[T any](v *T) sql.Scanner {
	return column[[]byte](func(b []byte) error {
		*v = *new(T) // json.Unmarshal would keep old entries of a map
		return json.Unmarshal(b, v)
	})
}

// AsJSON returns an argument of a statement: the JSON encoding of v. If the encoding fails, the statement fails.
func AsJSON(v any) driver.Valuer { return encoded{v} }

type encoded struct{ v any }

// Value implements [driver.Valuer].
func (e encoded) Value() (driver.Value, error) {
	text, err := json.Marshal(e.v)
	return string(text), err
}
