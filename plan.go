package reprise

import (
	"cmp"
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// plan specifies how a worker settles a delivery. It is complete before anything is sent.
type plan struct {
	way     way
	event   EventKind        // reported after the plan is carried out
	verb    ack.Verb         // settles the delivery; if there is a copy, after the broker has confirmed the copy
	copied  bool             // a copy is published to hop
	copy    amqpconn.Message // if copied is set
	hop     topology.Hop     // of a failed message
	reject  *rejection       // must be verified before the way rejecting; nil: any other way
	failure topology.Failure // of a failed message
	waits   string           // queue in which the message waits for its retry; "" if it is unknown or is not announced
	reports []report         // sent before the plan is carried out
	mature  time.Time        // the original must not be acknowledged before; zero: no limit
}

// way is a way to settle the delivery of a failed message. If a way is impossible, the planner chooses a later one.
type way int

const (
	retrying  way = iota // the message returns to its queue
	parking              // a copy with marks, or the delivery itself, goes to the failed queue
	unmarked             // an unchanged copy goes to the failed queue
	rejecting            // the broker moves the delivery to the failed queue, because of the arguments of the work queue
	holding              // the delivery stays unsettled until it must be settled, and is then requeued
)

// The plans without a failure. They are never changed.
var (
	acknowledging = plan{event: EventDone, verb: ack.Ack}
	requeuing     = plan{event: EventRequeued, verb: ack.NackRequeue}
)

// planner computes plans. A plan depends only on the arguments, on the configuration of the worker and on the user of the
// connection, except for the ID of a message that arrived without one. The planner sends nothing and logs nothing.
type planner struct {
	cfg    *WorkerConfig
	policy Policy        // of cfg; all attempts count if the broker counts them
	copies bool          // the route retries by copies
	host   string        // recorded with errors
	user   func() string // returns the user of the connection that publishes copies

	announces bool // operators see waiting messages
}

func newPlanner(cfg *WorkerConfig, host string, user func() string) planner {
	p := planner{cfg: cfg, policy: cfg.Policy, host: host, user: user}
	_ = guard.Call("strategy", func() error { // after an error, no message can be retried
		hop, err := cfg.Strategy.Route.Wait(topology.Delivery{Queue: cfg.Queue, RoutingKey: cfg.Queue}, 0)
		p.copies = err == nil && hop.Way == topology.Copy
		return nil
	})
	if !p.copies {
		p.policy = p.policy.counting()
	}
	return p
}

// plan returns the plan for a delivery after its attempt.
func (pl *planner) plan(d *delivery, stopping bool, now time.Time) *plan {
	p := pl.settling(d, stopping, now)
	if reports := pl.reports(d, p); len(reports) > 0 {
		reported := *p
		reported.reports = reports
		return &reported
	}
	return p
}

// settling returns the plan without reports. A failure while the worker stops handlers is not the fault of the message, and
// does not count.
func (pl *planner) settling(d *delivery, stopping bool, now time.Time) *plan {
	switch {
	case d.result.outcome == succeeded:
		return &acknowledging
	case stopping:
		return &requeuing
	}
	first := retrying
	if d.Err != nil { // the marks are unreadable, so they must stay as they are
		first = unmarked
	}
	return pl.from(first, d, topology.Failure{AttemptError: topology.AttemptError{
		Time: now, Error: d.result.text, Host: pl.host, Duration: d.result.took,
	}}, nil)
}

// after returns the plan after the broker has permanently refused the copy of p:
//
//	copy for a wait queue ─► copy for the failed queue ─► unmarked copy ─► rejection ─► hold
//
// An unmarked copy helps only if the headers are too large, and the failed queue only if the refusal concerns the wait queue.
func (pl *planner) after(p *plan, d *delivery, refusal publish.Refusal, reason error) *plan {
	f := topology.Failure{AttemptError: p.failure.AttemptError, Reason: "copy refused"}
	switch {
	case p.way == retrying && refusal == publish.DestinationRefused:
		return pl.from(parking, d, f, reason)
	case p.way < unmarked && errors.Is(reason, ErrInvalidMessage):
		return pl.from(unmarked, d, f, reason)
	}
	return pl.from(rejecting, d, f, reason)
}

// from returns a plan with the first possible way, beginning with w. reason is the error of the previous way, which the
// plan records in addition to f.
func (pl *planner) from(w way, d *delivery, f topology.Failure, reason error) *plan {
	for ; ; w++ {
		p := &plan{way: w, event: EventParked, verb: ack.Ack, failure: f}
		p.failure.Attempt, p.failure.History, p.failure.Queue = d.Attempt, d.History, cmp.Or(d.Source, pl.cfg.Queue)
		p.failure.Exchange, p.failure.RoutingKey = d.History.OriginAt(d.At())
		if reason != nil {
			p.failure.Error += notes[w] + reason.Error()
		}
		if reason = guard.Call("strategy or policy", func() error { return pl.choose(d, p) }); reason == nil {
			pl.announce(d, p)
			return p
		}
		w, f = p.way, topology.Failure{AttemptError: p.failure.AttemptError, Reason: p.failure.Reason}
	}
}

// notes precede the reason why an earlier way is impossible, in the recorded error.
var notes = [...]string{
	parking:   "\n\nparked: cannot retry the message: ",
	unmarked:  "\n\nparked: cannot settle the message: ",
	rejecting: "\n\nrejected: ",
	holding:   "\n\ncannot be parked: ",
}

// choose completes p for its way. It returns an error if the way is impossible.
func (pl *planner) choose(d *delivery, p *plan) (err error) {
	strategy := &pl.cfg.Strategy
	if p.way == retrying {
		decision, noWay := pl.decide(d, p)
		if decision.Retry {
			p.event = EventRetried
			if noWay != nil || p.settledBy(p.hop.Way) {
				return noWay
			}
			return pl.fill(d, p, d.result.headers, strategy.Marks.Retry, amqpconn.RoomForStations(p.hop.Stations))
		}
		p.way, p.failure.Reason = parking, cmp.Or(d.result.reason, decision.Reason)
	}
	switch p.way {
	case parking:
		if p.hop = strategy.Route.Failed(d.At()); p.settledBy(p.hop.Way) {
			return nil
		}
		return pl.fill(d, p, d.result.headers, strategy.Marks.Park, amqpconn.RoomForDelivery)
	case unmarked:
		if p.hop = strategy.Route.Failed(d.At()); p.hop.Way != topology.Copy {
			return errNotCopied
		}
		unchanged := func(headers topology.Table, _ topology.Failure) topology.Table { return headers }
		return pl.fill(d, p, nil, unchanged, 0) // the headers arrived in one frame, so they fit into one
	case rejecting:
		if d.Leased() {
			return errNotDeadLettered // the broker would return the copy to the work queue
		}
		p.verb, p.failure.Reason = ack.DeadLetter, "copy refused"
		p.reject, err = newRejection(pl.cfg.topology(), d.At(), strategy.Route.Failed(d.At()))
		return err
	}
	p.event, p.verb = EventRequeued, ack.NackRequeue
	return nil
}

// announce sets the queue that operators see for a message that waits. After an error, the queue is unknown.
func (pl *planner) announce(d *delivery, p *plan) {
	if pl.announces && p.event == EventRetried && p.hop.Delay >= protocol.MinReportedRetry {
		_ = guard.Call("strategy", func() error {
			p.waits = pl.cfg.Strategy.WaitingIn(d.At(), p.hop)
			return nil
		})
	}
}

// settledBy sets the verb for a hop without a copy. It returns false if the hop needs a copy.
func (p *plan) settledBy(w topology.Way) bool {
	switch w {
	case topology.Requeue:
		p.verb = ack.RejectRequeue
	case topology.DeadLetter:
		p.verb = ack.DeadLetter
	}
	return w != topology.Copy
}

// decide calls the policy. If the message specifies the number of remaining retries, this number replaces the MaxAttempts
// of the policy. decide sets the hop of a retry, and returns an error if the route cannot provide one.
func (pl *planner) decide(d *delivery, p *plan) (decision Decision, noWay error) {
	policy, verdict := pl.policyOf(d), d.result.verdict
	if left := d.History.RetriesLeft; left != topology.Undecided {
		policy = policy.withMaxAttempts(d.Attempt + left)
	}
	var since time.Duration
	if first := d.History.FirstFailed; !first.IsZero() {
		since = p.failure.Time.Sub(first)
	}
	verdict.uncounted = verdict.uncounted && pl.copies
	decision = policy.decide(verdict, d.result.err, d.Attempt, since, func(delay time.Duration) time.Duration {
		if p.hop, noWay = pl.cfg.Strategy.Route.Wait(d.At(), delay); noWay != nil {
			return delay
		}
		return p.hop.Delay
	})
	if decision.Uncounted { // a parked message shows all attempts
		p.failure.Uncounted, p.failure.Attempt = true, d.History.Attempts
	}
	return decision, noWay
}

// rejection is the way of a rejected delivery to the failed queue.
type rejection struct {
	work topology.Queue // must exist with these arguments
	to   string
	sure bool // dead-lettering is at least once; otherwise the queue to must exist
}

var (
	errNotCopied       = errors.New("reprise: the route parks without a copy")
	errNotDeadLettered = errors.New("reprise: work queue does not dead-letter into the failed queue (declare it with x-dead-letter-exchange and x-dead-letter-routing-key)")
)

// newRejection returns an error unless the broker moves a rejected delivery exactly to the failed queue.
func newRejection(t topology.Topology, d topology.Delivery, failed topology.Hop) (*rejection, error) {
	work, to, sure, ok := t.Rejected(d, failed)
	if !ok {
		return nil, errNotDeadLettered
	}
	return &rejection{work, to, sure}, nil
}

// to returns the destination of the copy, for logs: QUEUE or EXCHANGE/KEY. It is "" if the broker moves the message.
func (p *plan) to() string {
	if p.hop.Exchange == "" {
		return p.hop.RoutingKey
	}
	return p.hop.Exchange + "/" + p.hop.RoutingKey
}
