package failed

import (
	"context"
	"database/sql"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Destination is where messages of a Plan go.
type Destination struct {
	Target
	FailedQueue string // that they were taken from
	Messages    int64

	// Unknown says that nobody knows in which queue they failed: they stay, unless
	// Plan.To says where to send them.
	Unknown bool

	// Claimed says that nothing but a header names the queue, which whoever published the
	// messages can have written. An archive does not tell: LookBeforeRedrive does.
	Claimed bool
}

// Destinations returns where BeginReplay would have the messages of a plan sent, and how
// many, the most first. Where a message failed may be known only from what its publisher
// can have written on it (see IngestConfig.Origin): so it is for whoever begins a replay
// to see what goes where. It looks at all messages that are selected.
func (a *Archive) Destinations(ctx context.Context, p Plan) ([]Destination, error) {
	all, err := a.destinations(ctx, p)
	if err != nil {
		return nil, doing(err, "looking where messages would be sent")
	}
	return all, nil
}

func (a *Archive) destinations(ctx context.Context, p Plan) (all []Destination, err error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	s, err := a.selection(ctx, p.Filter)
	if err != nil || s == nil {
		return nil, err
	}
	work := "q.name"
	if p.To != nil {
		work = "NULL" // it does not matter
	}
	for row, err := range a.rows(sqlkit.Long(ctx), `SELECT `+work+`, m.failed_queue, count(*) FROM {message} m JOIN {queue} q ON q.id = m.queue
		WHERE m.state = 0 AND `+s.where()+` GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2`, s.args...) {
		if err != nil {
			return nil, err
		}
		var queue sql.NullString
		var d Destination
		if err := row.Scan(&queue, &d.FailedQueue, &d.Messages); err != nil {
			return nil, err
		}
		d.Target, err = (&Message{Queue: queue.String, FailedQueue: d.FailedQueue}).target(p.To)
		d.Unknown = err != nil
		all = append(all, d)
	}
	return all, nil
}
