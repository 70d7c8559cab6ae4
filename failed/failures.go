package failed

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Failure is a message that has arrived in the archive.
type Failure struct {
	ID    ID
	Queue string    // the work queue it failed in
	Time  time.Time // of the last attempt
}

// Failures returns the next n messages that have arrived after the message with an ID, or fewer if there are no more: the first
// to arrive comes first. IDs are in the order of arrivals.
func (a *Archive) Failures(ctx context.Context, after ID, n int) (all []Failure, err error) {
	defer annotate(&err, "listing failures")
	var x Failure
	for err := range a.db.Rows(ctx, `SELECT m.id, q.name, m.last_failed FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE m.id > $1 ORDER BY m.id LIMIT $2`,
		int64(after), n).Scan(&x.ID, &x.Queue, sqlkit.Time(&x.Time)) {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}
