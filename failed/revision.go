package failed

import (
	"context"
	"database/sql"
	"errors"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Revision returns what one edit made of a message, also if it was taken back, or
// ErrNotFound. Edits has the numbers.
func (a *Archive) Revision(ctx context.Context, id ID, number int) (*Revision, error) {
	r, err := a.revision(ctx, id, number)
	if err != nil {
		return nil, doing(err, "reading revision %d of message %d", number, id)
	}
	return r, nil
}

func (a *Archive) revision(ctx context.Context, id ID, number int) (*Revision, error) {
	r := &Revision{Edit: Edit{Number: number}}
	var at int64
	var body []byte
	var headers, properties string
	err := a.row(ctx, `SELECT at, actor, body, headers, properties FROM {revision} WHERE message = $1 AND number = $2`, int64(id), number).
		Scan(&at, &r.Actor, &body, &headers, &properties)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	r.Time = sqlkit.TimeOf(at)
	r.Content, err = contentFrom(body, headers, properties)
	return r, err
}
