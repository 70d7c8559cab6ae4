package failed

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Destination is where messages of a Plan go.
type Destination struct {
	// Target is the same for all of them, but for the RoutingKey: "" if Keys is set.
	Target

	// Queue is the work queue that the target leads to, and to no other; "" if the target was
	// named for all messages.
	Queue string

	// Warning says what a program that is not a worker of Reprise sees, if the messages are sent
	// by the name of their queue and were, or may have been, published otherwise; and why they
	// are. Empty: nothing is different from when they were first published.
	Warning string

	// Keys says that they are sent with more than one routing key, each with its own.
	Keys bool

	FailedQueue string // that they were taken from
	Messages    int64

	// Unknown says that nobody knows in which queue they failed: they stay, unless
	// Plan.To says where to send them.
	Unknown bool

	// Claimed says that nothing but a header names the queue, which whoever published the
	// messages can have written. An archive does not tell: LookBeforeRedrive does.
	Claimed bool
}

// Destinations returns where BeginReplay would have the messages of a plan sent by a Replayer
// with this Routing, and how many, the most first. Where a message failed may be known only from
// what its publisher can have written on it (see IngestConfig.Origin): so it is for whoever begins
// a replay to see what goes where. It looks at all messages that are selected.
func (a *Archive) Destinations(ctx context.Context, p Plan, r Routing) (all []Destination, err error) {
	defer annotate(&err, "looking where messages would be sent")
	s, err := a.selection(ctx, p.Filter)
	if err != nil || s == nil {
		return nil, errors.Join(p.validate(), err)
	}
	return a.destinations(sqlkit.Long(ctx), p, r, s.where(), s.args)
}

// Preview is Destinations for a page, which is not to wait: it looks at some thousand messages, and
// reports whether more are selected.
func (a *Archive) Preview(ctx context.Context, p Plan, r Routing) (all []Destination, more bool, err error) {
	defer annotate(&err, "looking where messages would be sent")
	p.Filter.All, p.Filter.States = false, []State{Failed}
	s, err := a.selection(ctx, p.Filter)
	if err != nil || s == nil {
		return nil, false, errors.Join(p.validate(), err)
	}
	at, more, err := a.some(ctx, s)
	if err != nil {
		return nil, false, err
	}
	all, err = a.destinations(ctx, p, r, a.d.in("m.pos", "$1"), []any{list(a.d, at)})
	return all, more, err
}

// destinations are those of the failed messages for which a condition on {message} AS m holds.
func (a *Archive) destinations(ctx context.Context, p Plan, r Routing, where string, args []any) ([]Destination, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	back := newReturns(r, a.cfg.Logger)
	from := "q.name, m.failed_queue, m.exchange, m.routing_key"
	if p.To != nil {
		from = "NULL, m.failed_queue, NULL, NULL" // it does not matter
	}
	if err := back.ask(ctx); err != nil { // not while the rows are read
		return nil, err
	}
	rows := a.db.Rows(ctx, `SELECT `+from+`, count(*) FROM {message} m JOIN {queue} q ON q.id = m.queue
		WHERE m.state = 0 AND `+where+` GROUP BY 1, 2, 3, 4`, args...)
	var t tally
	var m sentFrom
	var n int64
	for err := range rows.Scan(sqlkit.Text(&m.queue), &m.failedQueue, sqlkit.Text(&m.exchange), sqlkit.Text(&m.key), &n) {
		if err != nil {
			return nil, err
		}
		to, err := back.to(ctx, m, p.To)
		unknown := errors.Is(err, errNowhere)
		if p.To != nil {
			to.Queue = ""
		}
		if err != nil && !unknown {
			return nil, err
		}
		t.add(Destination{Target: to.Target, Queue: to.Queue, Warning: to.Warning, FailedQueue: m.failedQueue, Messages: n, Unknown: unknown})
	}
	return t.all(), nil
}

// tally counts messages by where they go.
type tally struct{ counts map[Destination]*Destination }

// add adds the messages of d. Keys are as many as publishers choose: those that are alike in
// all else are one destination.
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

// all returns the destinations, the most messages first.
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
