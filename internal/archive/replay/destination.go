package replay

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Destination is the destination of some messages of a Plan.
type Destination struct {
	// Target is the exchange and the routing key of all these messages. RoutingKey is "" if Keys is set.
	failed.Target

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

	// Lost is the reason why the messages will not be sent, because their consumer would lose them. Only LookBeforeRedrive
	// sets it: see Refusals.
	Lost string
}

// Refusals returns the reasons why a Replayer would refuse messages of a plan, because their consumers would lose them: see
// framework.LossError. It reads at most limit messages, the oldest first, and reports whether there are more.
func Refusals(ctx context.Context, a *store.Archive, p failed.Plan, limit int) (all []store.EditReason, more bool, err error) {
	defer failed.Annotate(&err, "cannot examine messages")
	f := p.Filter
	f.All, f.States = false, []failed.State{failed.Failed}
	reasons := map[string]int64{}
	for m, err := range a.Each(ctx, f) {
		if err != nil {
			return nil, false, err
		}
		if more = limit == 0; more {
			break
		}
		limit--
		_, err := framework.Restore(m.Content, m.FailedQueue, m.Current())
		if err != nil {
			reasons[err.Error()]++
		}
	}
	for why, n := range reasons {
		all = append(all, store.EditReason{Why: why, Messages: n})
	}
	slices.SortFunc(all, func(a, b store.EditReason) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Why, b.Why))
	})
	return all, more, nil
}

// Destinations returns the destinations to which a Replayer with this Routing would send the messages of a plan, in
// descending order of the number of messages. Review them before you begin a replay, because the work queue of a
// message may be known only from headers that its publisher may have written (see ingest.Config.Origin). Destinations
// reads all selected messages.
func Destinations(ctx context.Context, a *store.Archive, p failed.Plan, r Routing) (all []Destination, err error) {
	defer failed.Annotate(&err, "cannot determine the destinations of messages")
	if err := p.Validate(); err != nil {
		return nil, err
	}
	to := destinations{ctx: ctx, plan: p, router: newRouter(r, a.Config().Logger)}
	if err := a.Origins(ctx, p.Filter, to.coarse(), to.ready, to.add); err != nil {
		return nil, err
	}
	return to.all(), nil
}

// Preview is a fast variant of Destinations for a web page. It reads at most a few thousand messages and returns their
// destinations. It counts the selected messages as Archive.Count does.
func Preview(ctx context.Context, a *store.Archive, p failed.Plan, r Routing) (all []Destination, t store.Total, err error) {
	defer failed.Annotate(&err, "cannot determine the destinations of messages")
	if err := p.Validate(); err != nil {
		return nil, t, err
	}
	to := destinations{ctx: ctx, plan: p, router: newRouter(r, a.Config().Logger)}
	if t, err = a.SomeOrigins(ctx, p.Filter, to.coarse(), to.ready, to.add); err != nil {
		return nil, t, err
	}
	return to.all(), t, nil
}

// destinations collects the destinations of a plan.
type destinations struct {
	tally
	ctx    context.Context
	plan   failed.Plan
	router *router
}

// ready reads the bindings that the routing needs, so that nothing is read during the query for the messages.
func (d *destinations) ready() error { return d.router.ask(d.ctx) }

// coarse reports whether only the failed queue of a message matters, because the plan sets the exchange.
func (d *destinations) coarse() bool { return d.plan.To != nil && d.plan.To.Exchange != "" }

// add adds n messages.
func (d *destinations) add(m store.Origin, n int64) error {
	to, err := d.router.to(d.ctx, m, d.plan.To)
	unknown := errors.Is(err, errUnknownQueue)
	if d.plan.To != nil {
		to.Queue = ""
	}
	if err != nil && !unknown {
		return err
	}
	d.tally.add(Destination{
		Target: to.Target, Queue: to.Queue, Route: to.Route, Warning: to.Warning, Refused: to.check(d.plan.ByQueueName) != nil,
		FailedQueue: m.FailedQueue, Messages: n, Unknown: unknown,
	})
	return nil
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
