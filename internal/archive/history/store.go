package history

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// tables defines the tables for both dialects. Names and labels are bytes; times are milliseconds since 1970, starts and
// spans of intervals are seconds; totals are encoded by Totals.encode.
var tables = sqlkit.Tables{Version: 1, Lock: "7365417205", Statements: []string{
	`CREATE TABLE IF NOT EXISTS {interval} (
		span   BIGINT NOT NULL,
		queue  BYTES NOT NULL,
		start  BIGINT NOT NULL,
		totals BYTES NOT NULL,
		PRIMARY KEY (span, queue, start)
	) WITHOUT ROWID`,
	// The number of recorded minutes in an interval, for all queues.
	`CREATE TABLE IF NOT EXISTS {recorded} (
		span    BIGINT NOT NULL,
		start   BIGINT NOT NULL,
		minutes BIGINT NOT NULL,
		PRIMARY KEY (span, start)
	) WITHOUT ROWID`,
	// Totals of workers, so that the next status adds only the difference.
	`CREATE TABLE IF NOT EXISTS {worker} (
		id      BYTES PRIMARY KEY,
		heard   BIGINT NOT NULL,
		stopped SMALLINT NOT NULL,
		totals  BYTES NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS {mark} (
		id    BIGINT PRIMARY KEY,
		at    BIGINT NOT NULL,
		label BYTES NOT NULL,
		queue BYTES NOT NULL, -- empty: all
		actor BYTES NOT NULL
	)`,
	`INSERT INTO {about} (name, value) VALUES ('` + aboutArrived + `', '0'), ('` + aboutMark + `', '0') ON CONFLICT (name) DO NOTHING`,
}}

// Names in {about}, in addition to the version.
const (
	aboutArrived = "arrived" // ID of the newest archived message that has been counted
	aboutMark    = "mark"    // ID of the newest mark
)

// write runs a transaction. Write transactions of all processes run one at a time.
func (h *History) write(ctx context.Context, f func(*sqlkit.Tx) error) error {
	return h.db.Transaction(ctx, h.cfg.Dialect.WritingAlone(tables.Lock), f)
}

func about(tx *sqlkit.Tx, name string) (n int64, err error) {
	var text string
	if err = tx.Row(`SELECT value FROM {about} WHERE name = $1`, name).Scan(&text); err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

func setAbout(tx *sqlkit.Tx, name string, n int64) error {
	_, err := tx.Exec(`UPDATE {about} SET value = $2 WHERE name = $1`, name, strconv.FormatInt(n, 10))
	return err
}

// seconds returns the stored form of a span.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// Series returns the history of a queue up to now. If the queue has no history, all numbers are zero.
func (h *History) Series(ctx context.Context, queue string, r Range) (Series, error) {
	all, err := h.series(ctx, r, ` AND queue = $3`, []byte(queue))
	if err != nil {
		return Series{}, fmt.Errorf("cannot read the history of %q: %w", queue, err)
	}
	if s, found := all[queue]; found {
		return *s, nil
	}
	return *all[""], nil
}

// All returns the histories of all queues with events in the range, sorted by queue.
func (h *History) All(ctx context.Context, r Range) ([]Series, error) {
	all, err := h.series(ctx, r, ``)
	if err != nil {
		return nil, fmt.Errorf("cannot read the histories: %w", err)
	}
	delete(all, "")
	return sorted(all), nil
}

// series returns the histories of the queues that match a condition, by queue, and an empty history for the queue "".
func (h *History) series(ctx context.Context, r Range, condition string, args ...any) (map[string]*Series, error) {
	blank := r.empty("", h.now())
	args = append([]any{seconds(r.Step), blank.Points[0].Start.Unix()}, args...)
	var start, minutes int64
	for err := range h.db.Rows(ctx, `SELECT start, minutes FROM {recorded} WHERE span = $1 AND start >= $2`, args[:2]...).Scan(&start, &minutes) {
		if err != nil {
			return nil, err
		}
		if p := blank.at(time.Unix(start, 0)); p != nil {
			p.Recorded = time.Duration(minutes) * time.Minute
		}
	}
	// The last interval has just begun and will be recorded soon, so it is not a gap.
	if n := len(blank.Points); blank.Points[n-1].Gap() && !blank.Points[n-2].Gap() && blank.Lasted(n-1) < maxBetween {
		blank.Points[n-1].Recorded = blank.Lasted(n - 1)
	}
	all := map[string]*Series{"": &blank}
	var queue []byte
	var totals Totals
	for err := range h.db.Rows(ctx, `SELECT queue, start, totals FROM {interval} WHERE span = $1 AND start >= $2`+condition, args...).Scan(&queue, &start, stored(&totals)) {
		if err != nil {
			return nil, err
		}
		s := all[string(queue)]
		if s == nil {
			s = &Series{Queue: string(queue), Range: r, Now: blank.Now, Points: append([]Point(nil), blank.Points...)}
			all[s.Queue] = s
		}
		if p := s.at(time.Unix(start, 0)); p != nil {
			p.Totals = totals
		}
	}
	return all, nil
}
