package failed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpconn"

	"github.com/reprisemq/reprise"
)

// refusal is why a message can never be sent.
type refusal struct {
	ID  ID
	Why string
}

// Refuse notes that messages of a running replay can never be sent as they are: they
// are failed again, with the reason on them, and the replay goes on without them. It
// may be told of one more than once; one that has been sent, or is not of the replay,
// is left as it is.
func (a *Archive) markRefused(ctx context.Context, id ReplayID, refusals []refusal) (err error) {
	defer annotate(&err, "noting that %d messages of replay %d cannot be sent", len(refusals), id)
	if len(refusals) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		var c counting
		for _, r := range refusals {
			if err := tx.refuse(id, r, &c); err != nil {
				return err
			}
		}
		return tx.count(c)
	})
}

func (t *tx) refuse(id ReplayID, r refusal, c *counting) error {
	why := cut(r.Why, maxErrorShown)
	var group GroupID
	var queue int64
	err := t.Row(`UPDATE {message} SET state = 0, replay = 0, refused = $3 WHERE id = $2 AND state = 1 AND replay = $1 RETURNING grp, queue`,
		int64(id), int64(r.ID), []byte(why)).Scan(&group, &queue)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	c.add(group, queue, codes[Replaying], -1)
	c.add(group, queue, codes[Failed], 1)
	if _, err := t.Exec(`UPDATE {item} SET sent = 2, refused = $3 WHERE replay = $1 AND message = $2`, int64(id), int64(r.ID), []byte(why)); err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {replay} SET refused = refused + 1, why = CASE WHEN length(why) > 0 THEN why ELSE $2 END WHERE id = $1`,
		int64(id), []byte(unsent(r)))
	return err
}

// unsent says of which message a refusal is.
func unsent(r refusal) string { return fmt.Sprintf("message %d cannot be sent: %s", r.ID, r.Why) }

// unfit reports whether an error of publishing is about the message itself, and no
// other: it would be the same wherever it is sent, and whenever.
func unfit(err error) bool {
	_, large := errors.AsType[*reprise.TooLargeError](err)
	refused, ok := errors.AsType[*reprise.RefusedError](err)
	return large || errors.Is(err, reprise.ErrInvalidMessage) || errors.Is(err, errNowhere) || ok && refused.Code == amqpconn.PreconditionFailed
}

// barred reports whether it is about where the message goes or who sends it, so that it
// would be the same for others, until somebody has changed something.
func barred(err error) bool {
	_, unroutable := errors.AsType[*reprise.UnroutableError](err)
	_, refused := errors.AsType[*reprise.RefusedError](err)
	return unroutable || refused && !unfit(err)
}
