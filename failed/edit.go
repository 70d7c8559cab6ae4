package failed

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Edit makes c what a replay of the message sends. The original stays, and so does
// each earlier edit: see Edits. Only a message in state failed can be edited.
//
// Seen is the Message.Revision that c was made of. If somebody else has edited the message
// since, that is ErrState: of two who edit one message the second learns of the first.
//
// If c is what a replay sends already, nothing happens; if it is the original, that is
// Revert.
func (a *Archive) Edit(ctx context.Context, id ID, seen int, c Content, who Actor) (err error) {
	defer annotate(&err, "editing message %d", id)
	e, err := editOf(id, seen, c, who)
	if err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error { return tx.edit(e) })
}

// edit is an Edit that is ready to be written.
type edit struct {
	id   ID
	seen int
	who  Actor
	written
}

// written is a Content as it is stored.
type written struct {
	headers, properties string
	body                []byte
}

func (w written) is(other written) bool {
	return w.headers == other.headers && w.properties == other.properties && bytes.Equal(w.body, other.body)
}

func editOf(id ID, seen int, c Content, who Actor) (edit, error) {
	headers, properties, err := c.encode()
	return edit{id, seen, who, written{headers, properties, append([]byte{}, c.Body...)}}, errors.Join(err, who.validate())
}

// edit makes an edit, if it is one.
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
		int64(e.id), number, sqlkit.Millis(t.now()), []byte(e.who), e.headers, e.properties, e.body, 0,
	}})
	if err != nil {
		return err
	}
	return t.revise(e.id, number, actEdit, number, e.who)
}

var revisionColumns = []string{"message", "number", "at", "actor", "headers", "properties", "body", "replay"}

// revision returns a revision of a message; 0 is the original.
func (t *tx) revision(id ID, number int) (w written, err error) {
	if number == 0 {
		err = t.Row(`SELECT headers, properties, body FROM {content} WHERE message = $1`, int64(id)).Scan(&w.headers, &w.properties, &w.body)
	} else {
		err = t.Row(`SELECT headers, properties, body FROM {revision} WHERE message = $1 AND number = $2`, int64(id), number).Scan(&w.headers, &w.properties, &w.body)
	}
	return w, err
}

// nextRevision returns the number of the next edit of a message.
func (t *tx) nextRevision(id ID) (number int, err error) {
	err = t.Row(`SELECT COALESCE(max(number), 0) + 1 FROM {revision} WHERE message = $1`, int64(id)).Scan(&number)
	return number, err
}

// Revert takes an edit back: a replay sends the message as it failed. Only a message
// in state failed that is edited can be reverted. Seen is as for Edit.
func (a *Archive) Revert(ctx context.Context, id ID, seen int, who Actor) (err error) {
	defer annotate(&err, "reverting message %d", id)
	if err := who.validate(); err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error {
		if err := tx.editable(id, seen); err != nil {
			return err
		}
		if seen == 0 {
			return fmt.Errorf("%w: it has not been edited", ErrState)
		}
		return tx.revise(id, 0, actRevert, seen, who)
	})
}

// editable refuses what cannot be edited, or is not any more what was seen.
func (t *tx) editable(id ID, seen int) error {
	var state, edited int
	err := t.Row(`SELECT state, edited FROM {message} WHERE id = $1`, int64(id)).Scan(&state, &edited)
	switch s := States()[state]; {
	case errors.Is(err, sql.ErrNoRows):
		return &NotFoundError{"message", int64(id)}
	case err != nil:
		return err
	case s != Failed:
		return fmt.Errorf("%w: it is %s, and only what is failed can be changed", ErrState, s)
	case edited != seen:
		return fmt.Errorf("%w: somebody has edited it meanwhile: it is at revision %d, and revision %d was seen", ErrState, edited, seen)
	}
	return nil
}

// revise makes a revision what a replay sends; the act tells of one.
func (t *tx) revise(id ID, revision int, verb string, told int, who Actor) error {
	if _, err := t.Exec(`UPDATE {message} SET edited = $2 WHERE id = $1`, int64(id), revision); err != nil {
		return err
	}
	_, err := t.act(who, verb, fmt.Sprint("message/", id), map[string]any{"revision": told})
	return err
}

// EditAndReplay is Edit, and BeginReplay of that message alone, in one transaction: either
// both are done or nothing is. So what is sent is what whoever edits has seen: if somebody
// else has edited the message since, that is ErrState. The Filter of the plan is not
// looked at.
func (a *Archive) EditAndReplay(ctx context.Context, id ID, seen int, c Content, p Plan, who Actor) (r *Replay, err error) {
	defer annotate(&err, "editing and replaying message %d", id)
	p.Filter = Filter{IDs: []ID{id}}
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
		return nil, err // the commit may have failed
	}
	return r, nil
}

// Revision is an edit of a message.
type Revision struct {
	Number int // from 1
	Time   time.Time
	Actor  Actor
	Replay ReplayID // whose Plan.Edit it is; 0: a person edited the message alone
	Content
}

// Edits returns all edits of a message, oldest first, also those that were taken
// back. Content is empty: see Revision.
func (a *Archive) Edits(ctx context.Context, id ID) (all []Revision, err error) {
	defer annotate(&err, "reading the edits of message %d", id)
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

// Revision returns what one edit made of a message, also if it was taken back, or
// ErrNotFound. Edits has the numbers.
func (a *Archive) Revision(ctx context.Context, id ID, number int) (r *Revision, err error) {
	defer annotate(&err, "reading revision %d of message %d", number, id)
	all, err := a.revisions(ctx, `message = $1 AND number = $2`, int64(id), number)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &NotFoundError{"revision", int64(number)}
	}
	return &all[0], nil
}

// revisions are edits with what each made of the message: all of it at once, in memory.
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
