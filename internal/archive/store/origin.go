package store

import (
	"context"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Origin contains the properties that determine the target of a message.
type Origin struct {
	Queue, FailedQueue string // the work queue, and the failed queue of the message
	Exchange, Key      string // the original target, if known
}

// Origins calls add with each distinct origin of the messages in state failed that a filter selects, and the number of these
// messages. With coarse, it reports only the failed queue. Before it reads messages, it calls ready. It calls neither function if
// the filter selects no messages. Origins reads all selected messages.
func (a *Archive) Origins(ctx context.Context, f failed.Filter, coarse bool, ready func() error, add func(Origin, int64) error) error {
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return err
	}
	return a.origins(sqlkit.Long(ctx), coarse, ready, add, s.in(codes[failed.Failed]), s.args)
}

// SomeOrigins is a fast variant of Origins, which reads at most a few thousand messages. It counts the selected messages as
// Count does.
func (a *Archive) SomeOrigins(ctx context.Context, f failed.Filter, coarse bool, ready func() error, add func(Origin, int64) error) (t Total, err error) {
	f.All, f.States = false, []failed.State{failed.Failed}
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return t, err
	}
	at, more, err := a.some(ctx, s)
	if err != nil {
		return t, err
	}
	t = Total{N: int64(len(at)), More: more}
	if counted, ok, err := a.counted(ctx, f); ok || err != nil {
		t = Total{N: counted}
		if err != nil {
			return t, err
		}
	}
	return t, a.origins(ctx, coarse, ready, add, a.d.in("m.pos", "$1")+` AND m.state = 0`, []any{list(a.d, at)})
}

// origins groups the messages that match a condition on {message} AS m.
func (a *Archive) origins(ctx context.Context, coarse bool, ready func() error, add func(Origin, int64) error, where string, args []any) error {
	if err := ready(); err != nil {
		return err
	}
	from := "q.name, m.failed_queue, m.exchange, m.routing_key"
	if coarse {
		from = "NULL, m.failed_queue, NULL, NULL"
	}
	rows := a.db.Rows(ctx, `SELECT `+from+`, count(*) FROM {message} m JOIN {queue} q ON q.id = m.queue
		WHERE `+where+` GROUP BY 1, 2, 3, 4`, args...)
	var m Origin
	var n int64
	for err := range rows.Scan(sqlkit.Text(&m.Queue), &m.FailedQueue, sqlkit.Text(&m.Exchange), sqlkit.Text(&m.Key), &n) {
		if err != nil {
			return err
		}
		if err := add(m, n); err != nil {
			return err
		}
	}
	return nil
}
