package failed

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Destination is the destination of some messages of a Plan.
type Destination struct {
	// Target is the exchange and the routing key of all these messages. RoutingKey is "" if Keys is set.
	Target

	// Queue is the work queue of the messages, and the only queue to which the target routes. It is "" if Plan.To
	// sets the target of all messages.
	Queue string

	// Route specifies how the target is known: RouteOriginal, RouteGiven, RouteLearnt followed by the source,
	// RouteAssumed or RouteByName. It is "" if Unknown is set.
	Route string

	// Warning is set if Route is RouteAssumed or RouteByName: the messages were, or may have been, published to a different target. It
	// describes the reason, and the effect on consumers other than Reprise workers.
	Warning string

	// Refused reports whether the messages will not be sent, because Route is RouteByName and neither Plan.ByQueueName
	// nor RedriveConfig.ByQueueName is set.
	Refused bool

	// Keys reports whether the messages have different routing keys. Each message is sent with its own key.
	Keys bool

	FailedQueue string // the failed queue of the messages
	Messages    int64

	// Unknown reports whether the work queue of the messages is unknown. These messages stay in state failed, unless
	// Plan.To sets a target.
	Unknown bool

	// Claimed reports whether only a header names the queue. A publisher may have forged this header. Only
	// LookBeforeRedrive sets it; an Archive does not.
	Claimed bool
}

// Destinations returns the destinations to which a Replayer with this Routing would send the messages of a plan, in
// descending order of the number of messages. Review them before you begin a replay, because the work queue of a
// message may be known only from headers that its publisher may have written (see IngestConfig.Origin). Destinations
// reads all selected messages.
func (a *Archive) Destinations(ctx context.Context, p Plan, r Routing) (all []Destination, err error) {
	defer annotate(&err, "cannot determine the destinations of messages")
	s, err := a.selection(ctx, p.Filter)
	if err != nil || s == nil {
		return nil, errors.Join(p.validate(), err)
	}
	return a.destinations(sqlkit.Long(ctx), p, r, s.in(codes[Failed]), s.args)
}

// Preview is a fast variant of Destinations for a web page. It reads at most a few thousand messages and returns their
// destinations. It counts the selected messages as Count does.
func (a *Archive) Preview(ctx context.Context, p Plan, r Routing) (all []Destination, t Total, err error) {
	defer annotate(&err, "cannot determine the destinations of messages")
	p.Filter.All, p.Filter.States = false, []State{Failed}
	s, err := a.selection(ctx, p.Filter)
	if err != nil || s == nil {
		return nil, t, errors.Join(p.validate(), err)
	}
	at, more, err := a.some(ctx, s)
	if err != nil {
		return nil, t, err
	}
	t = Total{N: int64(len(at)), More: more}
	if counted, ok, err := a.counted(ctx, p.Filter); ok || err != nil {
		t = Total{N: counted}
		if err != nil {
			return nil, t, err
		}
	}
	all, err = a.destinations(ctx, p, r, a.d.in("m.pos", "$1")+` AND m.state = 0`, []any{list(a.d, at)})
	return all, t, err
}

// destinations returns the destinations of the messages that match a condition on {message} AS m.
func (a *Archive) destinations(ctx context.Context, p Plan, r Routing, where string, args []any) ([]Destination, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	back := newRouter(r, a.cfg.Logger)
	from := "q.name, m.failed_queue, m.exchange, m.routing_key"
	if p.To != nil && p.To.Exchange != "" {
		from = "NULL, m.failed_queue, NULL, NULL" // Plan.To replaces these values
	}
	if err := back.ask(ctx); err != nil { // reads the bindings before the rows, not during the query
		return nil, err
	}
	rows := a.db.Rows(ctx, `SELECT `+from+`, count(*) FROM {message} m JOIN {queue} q ON q.id = m.queue
		WHERE `+where+` GROUP BY 1, 2, 3, 4`, args...)
	var t tally
	var m sentFrom
	var n int64
	for err := range rows.Scan(sqlkit.Text(&m.queue), &m.failedQueue, sqlkit.Text(&m.exchange), sqlkit.Text(&m.key), &n) {
		if err != nil {
			return nil, err
		}
		to, err := back.to(ctx, m, p.To)
		unknown := errors.Is(err, errUnknownQueue)
		if p.To != nil {
			to.Queue = ""
		}
		if err != nil && !unknown {
			return nil, err
		}
		t.add(Destination{
			Target: to.Target, Queue: to.Queue, Route: to.Route, Warning: to.Warning, Refused: to.check(p.ByQueueName) != nil,
			FailedQueue: m.failedQueue, Messages: n, Unknown: unknown,
		})
	}
	return t.all(), nil
}

// tally counts messages by destination.
type tally struct{ counts map[Destination]*Destination }

// add adds the messages of d. Publishers can choose any number of routing keys, so add combines destinations that
// differ only in the routing key.
func (t *tally) add(d Destination) {
	alike := d
	alike.RoutingKey, alike.Messages = "", 0
	sum, found := t.counts[alike]
	if !found {
		if t.counts == nil {
			t.counts = map[Destination]*Destination{}
		}
		t.counts[alike] = &d
		return
	}
	sum.Messages += d.Messages
	if sum.RoutingKey != d.RoutingKey {
		sum.RoutingKey, sum.Keys = "", true
	}
}

// all returns the destinations in descending order of the number of messages.
func (t *tally) all() (all []Destination) {
	for _, d := range t.counts {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Destination) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.FailedQueue, b.FailedQueue),
			cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.Warning, b.Warning))
	})
	return all
}
