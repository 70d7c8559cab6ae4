package store

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Export writes the selected messages as JSON Lines, the oldest failure first, and returns their number. The export
// preserves bodies byte for byte, and headers with their types. It does not contain erased messages.
func (a *Archive) Export(ctx context.Context, f failed.Filter, w io.Writer) (n int64, err error) {
	buffered := bufio.NewWriter(w)
	for m, err := range a.Each(ctx, f) {
		if err != nil {
			return n, err
		}
		if m.Erased {
			continue
		}
		if err := a.export(ctx, m, buffered); err != nil {
			return n, fmt.Errorf("cannot export message %d: %w", m.ID, err)
		}
		n++
	}
	if err := buffered.Flush(); err != nil {
		return n, fmt.Errorf("cannot export messages: %w", err)
	}
	return n, nil
}

func (a *Archive) export(ctx context.Context, m *failed.Message, w io.Writer) error {
	l, err := lineOf(m)
	if err != nil {
		return err
	}
	l.Archive, l.ID = a.origin, int64(m.ID)
	err = a.db.Row(ctx, `SELECT archive, id FROM {origin} WHERE message = $1`, int64(m.ID)).Scan(&l.Archive, &l.ID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	revisions, err := a.revisions(ctx, `message = $1`, int64(m.ID))
	if err != nil {
		return err
	}
	for _, r := range revisions {
		c, err := lineContentOf(r.Content)
		if err != nil {
			return err
		}
		l.Revisions = append(l.Revisions, lineRevision{Time: r.Time, Actor: rawString(r.Actor), lineContent: c})
	}
	l.Edited = m.Revision // the revisions were read after m, so they include this revision
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Import stores a batch when it has importBatch messages or more than importBytes of lines.
const (
	importBatch = 500
	importBytes = 32 << 20
)

// Import reads the output of Export and returns the number of new messages. It skips messages that are in the archive
// or have been imported before. A message in state replaying becomes failed. The export does not contain the replays of
// a message. The time of arrival is the time of the import, so the retention counts from the import. If a line is
// invalid, Import stops after it has imported all lines before that line, and returns an error with the line number.
// Correct the file and import it again to add the remaining messages.
func (a *Archive) Import(ctx context.Context, r io.Reader, who failed.Actor) (added int64, err error) {
	if err := who.Validate(); err != nil {
		return 0, fmt.Errorf("cannot import messages: %w", err)
	}
	in := bufio.NewReaderSize(r, 1<<16)
	var act int64
	var lines []*line
	number, size := 0, 0
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		var n, written int64
		err := a.writeMany(ctx, func(tx *tx) (err error) {
			if n, err = tx.importLines(lines); err != nil || n == 0 {
				return err
			}
			written, err = tx.imported(who, act, added+n)
			return err
		})
		if err == nil {
			added += n
			act = max(act, written)
		}
		lines, size = lines[:0], 0
		return err
	}
	for {
		b, readErr := in.ReadBytes('\n')
		if len(b) > 0 {
			number++
			l, err := parseLine(b)
			if err != nil {
				return added, errors.Join(flush(), fmt.Errorf("cannot import line %d: %w", number, err))
			}
			if l != nil {
				lines = append(lines, l)
				size += len(b)
			}
		}
		if len(lines) == importBatch || size > importBytes || readErr != nil {
			if err := flush(); err != nil {
				return added, fmt.Errorf("cannot import the lines up to line %d: %w", number, err)
			}
		}
		if readErr == io.EOF {
			return added, nil
		}
		if readErr != nil {
			return added, fmt.Errorf("cannot read line %d of the import: %w", number+1, readErr)
		}
	}
}

// imported writes the Act of an import, or updates the number of messages in it.
func (t *tx) imported(who failed.Actor, act, n int64) (int64, error) {
	if act == 0 {
		return t.act(who, actImport, "", map[string]any{"messages": n})
	}
	_, err := t.Exec(`UPDATE {act} SET details = $2 WHERE id = $1`, act, fmt.Sprintf(`{"messages":%d}`, n))
	return act, err
}

// importLines adds the messages that are not in the archive, and returns their number.
func (t *tx) importLines(lines []*line) (int64, error) {
	var added []*Arrival
	var from []*line
	type name struct {
		archive string
		id      int64
	}
	here := make(map[name]bool)
	for _, l := range lines {
		n := name{l.Archive, l.ID}
		there, err := t.hasImported(l)
		if err != nil {
			return 0, err
		}
		if there || here[n] {
			continue
		}
		here[n] = true
		l.message.Archived = t.Now()
		added, from = append(added, &Arrival{m: l.message}), append(from, l)
	}
	for i, e := range added {
		if err := e.encode(t.cfg); err != nil {
			return 0, fmt.Errorf("cannot import message %d of archive %s: %w", from[i].ID, from[i].Archive, err)
		}
	}
	if err := t.add(added); err != nil {
		return 0, err
	}
	var origins, revisions [][]any
	for i, e := range added {
		l := from[i]
		origins = append(origins, []any{l.Archive, l.ID, int64(e.m.ID)})
		for j, r := range l.Revisions {
			headers, properties, err := encodeContent(r.content)
			if err != nil {
				return 0, err
			}
			revisions = append(revisions, []any{
				int64(e.m.ID), j + 1, sqlkit.Millis(r.Time), []byte(r.Actor), headers, properties, append([]byte{}, r.content.Body...), 0,
			})
		}
		if l.Edited > 0 {
			if _, err := t.Exec(`UPDATE {message} SET edited = $2 WHERE id = $1`, int64(e.m.ID), l.Edited); err != nil {
				return 0, err
			}
		}
	}
	return int64(len(added)), errors.Join(
		t.insert("{origin}", []string{"archive", "id", "message"}, "", origins),
		t.insert("{revision}", revisionColumns, "", revisions),
	)
}

// hasImported reports whether the archive contains the message of a line, or has imported it before.
func (t *tx) hasImported(l *line) (bool, error) {
	var n int
	err := t.Row(`SELECT count(*) FROM {origin} WHERE archive = $1 AND id = $2`, l.Archive, l.ID).Scan(&n)
	if err != nil || n > 0 || l.Archive != t.origin {
		return n > 0, err
	}
	err = t.Row(`SELECT count(*) FROM {message} WHERE id = $1`, l.ID).Scan(&n)
	return n > 0, err
}
