package failed

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Revision is an edit of a message.
type Revision struct {
	Number int // from 1
	Time   time.Time
	Actor  Actor
	Content
}

// Edits returns all edits of a message, oldest first, also those that were taken
// back. Content is empty: see Revision.
func (a *Archive) Edits(ctx context.Context, id ID) (all []Revision, err error) {
	defer annotate(&err, "reading the edits of message %d", id)
	rows := a.db.Rows(ctx, `SELECT number, at, actor FROM {revision} WHERE message = $1 ORDER BY number`, int64(id))
	var e Revision
	for err := range rows.Scan(&e.Number, sqlkit.Time(&e.Time), &e.Actor) {
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
		return nil, ErrNotFound
	}
	return &all[0], nil
}

// revisions are edits with what each made of the message: all of it at once, in memory.
func (a *Archive) revisions(ctx context.Context, which string, args ...any) (all []Revision, err error) {
	rows := a.db.Rows(ctx, `SELECT number, at, actor, body, headers, properties FROM {revision} WHERE `+which+` ORDER BY number`, args...)
	var r Revision
	var body []byte
	var headers, properties string
	for err := range rows.Scan(&r.Number, sqlkit.Time(&r.Time), &r.Actor, &body, &headers, &properties) {
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
