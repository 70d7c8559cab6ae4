package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// ErrInvalid is returned by AddMark for an invalid mark, and ErrNoMark by RemoveMark for an unknown ID.
var (
	ErrInvalid = errors.New("invalid mark")
	ErrNoMark  = errors.New("mark not found")
)

// maxMarkText is the maximum length of Mark.Text in bytes.
const maxMarkText = 200

// Mark is a label for a point in time, such as a deployment.
type Mark struct {
	ID    int64        `json:"id"`
	At    time.Time    `json:"time"`
	Text  string       `json:"text"`            // one line, at most 200 bytes
	Queue params.Text  `json:"queue,omitempty"` // "" for all queues
	By    failed.Actor `json:"by"`              // the user who added the mark
}

// For reports whether the mark concerns a queue.
func (m Mark) For(queue string) bool { return m.Queue == "" || string(m.Queue) == queue }

// AddMark stores a mark and returns it with its ID. If At is zero, AddMark uses the current time. It returns ErrInvalid
// if a field is invalid. AddMark also removes each mark after which MaxMarks others have been added.
func (h *History) AddMark(ctx context.Context, m Mark) (Mark, error) {
	now := h.now()
	if m.At.IsZero() {
		m.At = now
	}
	m.At = m.At.UTC().Truncate(time.Millisecond)
	m.Text = strings.TrimSpace(m.Text)
	switch {
	case m.Text == "":
		return m, fmt.Errorf("%w: text must not be empty", ErrInvalid)
	case len(m.Text) > maxMarkText:
		return m, fmt.Errorf("%w: text must have at most %d bytes: got %d", ErrInvalid, maxMarkText, len(m.Text))
	case !utf8.ValidString(m.Text) || strings.ContainsAny(m.Text, "\r\n\x00"):
		return m, fmt.Errorf("%w: text must be one line of UTF-8", ErrInvalid)
	case len(m.Queue) > 255:
		return m, fmt.Errorf("%w: queue must have at most 255 bytes: got %d", ErrInvalid, len(m.Queue))
	case m.At.After(now.Add(time.Minute)):
		return m, fmt.Errorf("%w: time must not be in the future: got %s", ErrInvalid, m.At.Format(time.RFC3339))
	case m.At.Before(now.Add(-10 * 365 * 24 * time.Hour)):
		return m, fmt.Errorf("%w: time must be within ten years: got %s", ErrInvalid, m.At.Format(time.RFC3339))
	case m.By == "":
		return m, fmt.Errorf("%w: By must not be empty", ErrInvalid)
	}
	err := h.write(ctx, func(tx *sqlkit.Tx) error {
		last, err := about(tx, aboutMark)
		if err != nil {
			return err
		}
		m.ID = last + 1
		if err := setAbout(tx, aboutMark, m.ID); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO {mark} (id, at, label, queue, actor) VALUES ($1, $2, $3, $4, $5)`,
			m.ID, sqlkit.Millis(m.At), []byte(m.Text), []byte(m.Queue), []byte(m.By)); err != nil {
			return err
		}
		_, err = tx.Exec(`DELETE FROM {mark} WHERE id <= $1`, m.ID-MaxMarks)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("cannot add a mark: %w", err)
	}
	return m, nil
}

// RemoveMark removes a mark and returns it. It returns ErrNoMark if the mark does not exist.
func (h *History) RemoveMark(ctx context.Context, id int64) (m Mark, err error) {
	err = h.write(ctx, func(tx *sqlkit.Tx) error {
		return tx.Row(`DELETE FROM {mark} WHERE id = $1 RETURNING id, at, label, queue, actor`, id).Scan(m.columns()...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return m, fmt.Errorf("%w: %d", ErrNoMark, id)
	}
	if err != nil {
		return m, fmt.Errorf("cannot remove mark %d: %w", id, err)
	}
	return m, nil
}

// Marks returns all marks since the given time, the newest first.
func (h *History) Marks(ctx context.Context, since time.Time) (all []Mark, err error) {
	var m Mark
	for err := range h.db.Rows(ctx, `SELECT id, at, label, queue, actor FROM {mark} WHERE at >= $1 ORDER BY at DESC, id DESC`, sqlkit.Millis(since)).Scan(m.columns()...) {
		if err != nil {
			return nil, fmt.Errorf("cannot list the marks: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

func (m *Mark) columns() []any { return []any{&m.ID, sqlkit.Time(&m.At), &m.Text, &m.Queue, &m.By} }

// Marks returns the marks that concern the queue and are within the time of the series, the oldest first. The parameter
// all must be sorted like the result of History.Marks.
func (s Series) Marks(all []Mark) (within []Mark) {
	for _, m := range slices.Backward(all) {
		if m.For(s.Queue) && !m.At.Before(s.Points[0].Start) && !m.At.After(s.Now) {
			within = append(within, m)
		}
	}
	return within
}
