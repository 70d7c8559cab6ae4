package failed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Edit makes c what a replay of the message sends. The original stays, and so does
// each earlier edit: see Edits. Only a message in state failed can be edited.
//
// Seen is the Message.Revision that c was made of. If somebody else has edited the message
// since, that is ErrState: of two who edit one message the second learns of the first.
func (a *Archive) Edit(ctx context.Context, id ID, seen int, c Content, who Actor) error {
	headers, properties, err := c.encode()
	if err == nil {
		err = a.revise(ctx, id, seen, who, ActEdit, func(tx *tx, _ int64) (revision int64, err error) {
			if err := tx.row(`SELECT COALESCE(max(number), 0) + 1 FROM {revision} WHERE message = $1`, int64(id)).Scan(&revision); err != nil {
				return 0, err
			}
			return revision, tx.insert("{revision}", revisionColumns, "", [][]any{{
				int64(id), revision, sqlkit.Millis(a.now()), bytesOf(string(who)), headers, properties, append([]byte{}, c.Body...),
			}})
		})
	}
	if err != nil {
		return doing(err, "editing message %d", id)
	}
	return nil
}

var revisionColumns = []string{"message", "number", "at", "actor", "headers", "properties", "body"}

// Revert takes an edit back: a replay sends the message as it failed. Only a message
// in state failed that is edited can be reverted. Seen is as for Edit.
func (a *Archive) Revert(ctx context.Context, id ID, seen int, who Actor) error {
	err := a.revise(ctx, id, seen, who, ActRevert, func(_ *tx, edited int64) (revision int64, err error) {
		if edited == 0 {
			return 0, fmt.Errorf("%w: it has not been edited", ErrState)
		}
		return 0, nil
	})
	if err != nil {
		return doing(err, "reverting message %d", id)
	}
	return nil
}

// revise makes another revision that of a message, which f is told the present one
// of: the one that was seen.
func (a *Archive) revise(ctx context.Context, id ID, seen int, who Actor, verb Verb, f func(tx *tx, edited int64) (int64, error)) error {
	if err := who.validate(); err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error {
		var state int
		var edited int64
		err := tx.row(`SELECT state, edited FROM {message} WHERE id = $1`, int64(id)).Scan(&state, &edited)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if s := States()[state]; s != Failed {
			return fmt.Errorf("%w: it is %s, and only what is failed can be changed", ErrState, s)
		}
		if edited != int64(seen) {
			return fmt.Errorf("%w: somebody has edited it meanwhile: it is at revision %d, and revision %d was seen", ErrState, edited, seen)
		}
		revision, err := f(tx, edited)
		if err != nil {
			return err
		}
		if _, err := tx.exec(`UPDATE {message} SET edited = $2 WHERE id = $1`, int64(id), revision); err != nil {
			return err
		}
		_, err = tx.act(who, verb, fmt.Sprint("message/", id), map[string]any{"revision": max(revision, edited)})
		return err
	})
}

// Edit is when a message was edited, and by whom.
type Edit struct {
	Number int // from 1
	Time   time.Time
	Actor  Actor
}

// Revision is an edit, and what it made of the message.
type Revision struct {
	Edit
	Content
}

// Edits returns all edits of a message, oldest first, also those that were taken
// back.
func (a *Archive) Edits(ctx context.Context, id ID) (all []Edit, err error) {
	for row, err := range a.rows(ctx, `SELECT number, at, actor FROM {revision} WHERE message = $1 ORDER BY number`, int64(id)) {
		var e Edit
		var at int64
		if err == nil {
			err = row.Scan(&e.Number, &at, &e.Actor)
		}
		if err != nil {
			return nil, doing(err, "reading the edits of message %d", id)
		}
		e.Time = sqlkit.TimeOf(at)
		all = append(all, e)
	}
	return all, nil
}

// revisions are all edits, with what each made of the message: all of it at once, in memory.
func (a *Archive) revisions(ctx context.Context, id ID) (all []Revision, err error) {
	for row, err := range a.rows(ctx, `SELECT number, at, actor, body, headers, properties FROM {revision} WHERE message = $1 ORDER BY number`, int64(id)) {
		if err != nil {
			return nil, err
		}
		var r Revision
		var at int64
		var body []byte
		var headers, properties string
		if err := row.Scan(&r.Number, &at, &r.Actor, &body, &headers, &properties); err != nil {
			return nil, err
		}
		r.Time = sqlkit.TimeOf(at)
		if r.Content, err = contentFrom(slices.Clone(body), headers, properties); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
