package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Edit sets the content that a replay of the message sends. The archive keeps the original and all earlier edits: see
// Edits. Only a message in state failed can be edited.
//
// The parameter seen is the Message.Revision on which the caller based c. If the message has been edited since then,
// Edit returns ErrState, so that a user does not unknowingly overwrite the edit of another user.
//
// If c equals the content that a replay would send, Edit has no effect. If c equals the original, Edit has the effect
// of Revert.
func (a *Archive) Edit(ctx context.Context, id failed.ID, seen int, c failed.Content, who failed.Actor) (err error) {
	defer failed.Annotate(&err, "cannot edit message %d", id)
	e, err := editOf(id, seen, c, who)
	if err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error { return tx.edit(e) })
}

// edit contains the arguments of Edit, with the content encoded.
type edit struct {
	id   failed.ID
	seen int
	who  failed.Actor
	written
}

// written is a Content in its stored form.
type written struct {
	headers, properties string
	body                []byte
}

func (w written) is(other written) bool {
	return w.headers == other.headers && w.properties == other.properties && bytes.Equal(w.body, other.body)
}

func editOf(id failed.ID, seen int, c failed.Content, who failed.Actor) (edit, error) {
	headers, properties, err := encodeContent(c)
	return edit{id, seen, who, written{headers, properties, append([]byte{}, c.Body...)}}, errors.Join(err, who.Validate())
}

// edit stores an edit, unless it changes nothing.
func (t *tx) edit(e edit) error {
	if err := t.editable(e.id, e.seen); err != nil {
		return err
	}
	original, err := t.revision(e.id, 0)
	if err != nil {
		return err
	}
	sent := original
	if e.seen != 0 {
		if sent, err = t.revision(e.id, e.seen); err != nil {
			return err
		}
	}
	switch {
	case e.is(sent):
		return nil
	case e.is(original):
		return t.revise(e.id, 0, actRevert, e.seen, e.who)
	}
	number, err := t.nextRevision(e.id)
	if err != nil {
		return err
	}
	err = t.insert("{revision}", revisionColumns, "", [][]any{{
		int64(e.id), number, sqlkit.Millis(t.Now()), []byte(e.who), e.headers, e.properties, e.body, 0,
	}})
	if err != nil {
		return err
	}
	return t.revise(e.id, number, actEdit, number, e.who)
}

var revisionColumns = []string{"message", "number", "at", "actor", "headers", "properties", "body", "replay"}

// revision returns a revision of a message. Number 0 is the original.
func (t *tx) revision(id failed.ID, number int) (w written, err error) {
	if number == 0 {
		err = t.Row(`SELECT headers, properties, body FROM {content} WHERE message = $1`, int64(id)).Scan(&w.headers, &w.properties, &w.body)
	} else {
		err = t.Row(`SELECT headers, properties, body FROM {revision} WHERE message = $1 AND number = $2`, int64(id), number).Scan(&w.headers, &w.properties, &w.body)
	}
	return w, err
}

// nextRevision returns the number of the next edit of a message.
func (t *tx) nextRevision(id failed.ID) (number int, err error) {
	err = t.Row(`SELECT COALESCE(max(number), 0) + 1 FROM {revision} WHERE message = $1`, int64(id)).Scan(&number)
	return number, err
}

// Revert undoes the edits of a message, so that a replay sends the original. Only an edited message in state failed can
// be reverted. The parameter seen has the same meaning as for Edit.
func (a *Archive) Revert(ctx context.Context, id failed.ID, seen int, who failed.Actor) (err error) {
	defer failed.Annotate(&err, "cannot revert message %d", id)
	if err := who.Validate(); err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error {
		if err := tx.editable(id, seen); err != nil {
			return err
		}
		if seen == 0 {
			return fmt.Errorf("%w: message has no edit", failed.ErrState)
		}
		return tx.revise(id, 0, actRevert, seen, who)
	})
}

// editable returns ErrState if the message is not in state failed, or if its current revision differs from seen.
func (t *tx) editable(id failed.ID, seen int) error {
	var state, edited int
	err := t.Row(`SELECT state, edited FROM {message} WHERE id = $1`, int64(id)).Scan(&state, &edited)
	switch s := failed.States()[state]; {
	case errors.Is(err, sql.ErrNoRows):
		return &failed.NotFoundError{What: "message", ID: int64(id)}
	case err != nil:
		return err
	case s != failed.Failed:
		return fmt.Errorf("%w: message must be failed to be changed: got %s", failed.ErrState, s)
	case edited != seen:
		return fmt.Errorf("%w: message was edited after revision %d: got revision %d (reload the message and edit it again)", failed.ErrState, seen, edited)
	}
	return nil
}

// revise selects the revision that a replay sends, and writes an audit log entry with the number of the new edit, or of
// the edit that is undone.
func (t *tx) revise(id failed.ID, revision int, verb string, before int, who failed.Actor) error {
	if _, err := t.Exec(`UPDATE {message} SET edited = $2 WHERE id = $1`, int64(id), revision); err != nil {
		return err
	}
	return t.actOn([]failed.ID{id}, who, verb, fmt.Sprint("message/", id), map[string]any{"revision": before})
}

// EditAndReplay combines Edit with BeginReplay of that message, in one transaction. It does both or neither, so the
// replay does not send an older or newer edit than c. If the message has been edited since revision seen, EditAndReplay
// returns ErrState. It ignores p.Filter.
func (a *Archive) EditAndReplay(ctx context.Context, id failed.ID, seen int, c failed.Content, p failed.Plan, who failed.Actor) (r *failed.Replay, err error) {
	defer failed.Annotate(&err, "cannot edit and replay message %d", id)
	p.Filter = failed.Filter{IDs: []failed.ID{id}}
	e, err := editOf(id, seen, c, who)
	if err != nil {
		return nil, err
	}
	b, err := a.beginning(ctx, p, who)
	if err != nil {
		return nil, err
	}
	err = a.write(ctx, func(tx *tx) error {
		if err := tx.edit(e); err != nil {
			return err
		}
		r, err = tx.begin(b)
		return err
	})
	if err != nil {
		return nil, err // r is invalid if the commit failed
	}
	return r, nil
}

// Revision is an edit of a message.
type Revision struct {
	Number int // starts at 1
	Time   time.Time
	Actor  failed.Actor
	Replay failed.ReplayID // the replay whose Plan.Edit created the revision; 0 for the edit of a user or after an import
	failed.Content
}

// Edits returns all edits of a message, oldest first, including undone edits. It does not set Revision.Content; use
// Archive.Revision to get the content.
func (a *Archive) Edits(ctx context.Context, id failed.ID) (all []Revision, err error) {
	defer failed.Annotate(&err, "cannot read the edits of message %d", id)
	rows := a.db.Rows(ctx, `SELECT number, at, actor, replay FROM {revision} WHERE message = $1 ORDER BY number`, int64(id))
	var e Revision
	for err := range rows.Scan(&e.Number, sqlkit.Time(&e.Time), &e.Actor, &e.Replay) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Revision returns an edit with its content, including an undone edit. Edits returns the numbers of the edits. If the
// edit does not exist, Revision returns ErrNotFound.
func (a *Archive) Revision(ctx context.Context, id failed.ID, number int) (r *Revision, err error) {
	defer failed.Annotate(&err, "cannot read revision %d of message %d", number, id)
	all, err := a.revisions(ctx, `message = $1 AND number = $2`, int64(id), number)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &failed.NotFoundError{What: "revision", ID: int64(number)}
	}
	return &all[0], nil
}

// revisions returns edits with their contents. It loads all of them into memory.
func (a *Archive) revisions(ctx context.Context, which string, args ...any) (all []Revision, err error) {
	rows := a.db.Rows(ctx, `SELECT number, at, actor, replay, body, headers, properties FROM {revision} WHERE `+which+` ORDER BY number`, args...)
	var r Revision
	var body []byte
	var headers, properties string
	for err := range rows.Scan(&r.Number, sqlkit.Time(&r.Time), &r.Actor, &r.Replay, &body, &headers, &properties) {
		if err != nil {
			return nil, err
		}
		if r.Content, err = contentFrom(body, headers, properties); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
