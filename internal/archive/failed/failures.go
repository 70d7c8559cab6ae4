package failed

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Failure is the summary of an archived message.
type Failure struct {
	ID    ID
	Queue string    // the work queue
	Time  time.Time // the time of the last failure
}

// Failures returns at most n messages with an ID greater than after, in ascending order of IDs, which is the order of
// arrival.
func (a *Archive) Failures(ctx context.Context, after ID, n int) (all []Failure, err error) {
	defer annotate(&err, "cannot list failures")
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
