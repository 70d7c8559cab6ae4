package reprise

import (
	"cmp"
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// said is what a handler's error means.
type said struct {
	verdict
	err     error
	text    string // recorded with the attempt
	reason  string // why it is to be parked, where no policy was asked
	headers topology.Table
}

// listen reads a handler's error. Its methods are the user's code, which panics
// for a nil pointer in an error's clothes.
func (w *Worker) listen(err error) said {
	s := said{err: err}
	bad := guard("error of the handler", func() error {
		if s.verdict = classify(err); s.outcome != succeeded {
			s.text = err.Error()
			s.headers = annotations(err)
		}
		return nil
	})
	if bad != nil {
		return said{verdict: verdict{outcome: failed}, err: bad, text: bad.Error()}
	}
	return s
}

// errText is an error that no handler returned.
type errText string

func (e errText) Error() string { return string(e) }

// settle acknowledges a delivery, or puts something in its place: see replace.
// Whatever fails on the way leaves the original unacknowledged.
func (w *Worker) settle(d *delivery, s said, took time.Duration) {
	switch {
	case s.outcome == succeeded:
		e := Event{Kind: EventDone}
		if !w.acknowledge(d) {
			e = Event{Kind: EventDropped, Err: errLostWithSession}
		}
		w.settled(e, d)
		return
	case w.handling.Err() != nil:
		// The drain took its context away: that is no verdict on the message.
		w.log.Info("given back", "message_id", d.MessageID, "attempt", d.attempt, "error", logged(s.text))
		d.giveBack()
		w.settled(Event{Kind: EventGivenBack, Err: s.err}, d)
		return
	}
	c := w.replacement(d, s.text, took)
	if err := guard("strategy or policy", func() error { return w.choose(d, c, s) }); err != nil {
		// A message whose own headers fill the frame, or a part of another
		// package that failed.
		w.log.Error("cannot be settled", "message_id", d.MessageID, "attempt", d.attempt, "error", err)
		w.parkUnmarked(d, w.replacement(d, s.text, took), err)
		return
	}
	w.replace(d, c)
}

// acknowledge acknowledges a delivery, and tells who wants to know it for certain. It
// returns false where the broker does not hear of it, or may not have.
func (w *Worker) acknowledge(d *delivery) bool {
	if w.cfg.Acked == nil {
		return d.ack()
	}
	err := d.ackNow()
	if bad := guard("function Acked", func() error { w.cfg.Acked(d.given, err); return nil }); bad != nil {
		w.log.Error("Acked failed", "message_id", d.MessageID, "attempt", d.attempt, "error", bad)
	}
	return err == nil
}

// choose decides what takes a failed delivery's place: another attempt, if one is
// allowed and possible, or a copy that is parked.
func (w *Worker) choose(d *delivery, c *replacement, s said) error {
	var err error
	decision := w.decide(d, s, func(delay time.Duration) time.Duration {
		if c.hop, err = w.cfg.Strategy.Route.Wait(d.at, delay); err != nil {
			return delay
		}
		return c.hop.Delay
	})
	if decision.Retry {
		if err == nil {
			err = w.retry(d, c, s)
		}
		if err == nil {
			return nil
		}
		c.f.Error += "\n\nparked, because it cannot be retried: " + err.Error()
	}
	c.f.Reason = cmp.Or(s.reason, decision.Reason)
	c.hop, c.kind = w.cfg.Strategy.Route.Failed(d.at), parked
	return w.fill(d, c, s.headers, w.cfg.Strategy.Marks.Park, amqpconn.RoomForDelivery)
}

// decide asks the policy. Where the message itself says how many retries it has
// left, that is the policy's number of attempts.
func (w *Worker) decide(d *delivery, s said, wait func(time.Duration) time.Duration) Decision {
	p := w.cfg.Policy
	if left := d.history.RetriesLeft; left != topology.Undecided {
		p = p.atMost(d.attempt + left)
	}
	var since time.Duration
	if first := d.history.FirstFailed; !first.IsZero() {
		since = time.Since(first)
	}
	return p.decide(s.verdict, s.err, d.attempt, since, wait)
}

// retry makes what brings a message back over c's hop.
func (w *Worker) retry(d *delivery, c *replacement, s said) error {
	c.kind = retried
	if c.hop.Way != topology.Copy {
		return nil
	}
	return w.fill(d, c, s.headers, w.cfg.Strategy.Marks.Retry, amqpconn.RoomForStations(c.hop.Stations))
}

// parkUnmarked parks a copy with nothing written on it. It is the last resort:
// left unacknowledged, the delivery would take a place of the prefetch for as
// long as the session lives, until nothing else is delivered.
func (w *Worker) parkUnmarked(d *delivery, c *replacement, reason error) {
	bare, err := w.unmarked(d, c, reason)
	if err != nil {
		w.log.Error("cannot be parked", "message_id", d.MessageID, "attempt", d.attempt, "error", err)
		w.settled(Event{Kind: EventDropped, Err: err}, d)
		return
	}
	w.replace(d, bare)
}

// unmarked makes a copy that is parked with nothing written on it, in place of c. Why, is
// told where people look, unless reason is nil.
func (w *Worker) unmarked(d *delivery, c *replacement, reason error) (*replacement, error) {
	bare := &replacement{f: c.f, kind: parked, unmarked: true}
	if reason != nil {
		bare.f.Error += "\n\nparked, because it cannot be settled: " + reason.Error()
	}
	return bare, guard("strategy", func() error {
		bare.hop = w.cfg.Strategy.Route.Failed(d.at)
		asItCame := func(headers topology.Table, _ topology.Failure) topology.Table { return headers }
		// It came in one frame, so it fits into one.
		return w.fill(d, bare, nil, asItCame, 0)
	})
}

// settled tells the observer what became of a delivery, and of those that were
// handled with it.
func (w *Worker) settled(e Event, d *delivery) {
	e.MessageID, e.Message, e.Attempt = d.MessageID, d.given, d.attempt
	w.observe(e)
	if e.Kind == EventDone || e.Kind == EventRetried || e.Kind == EventParked {
		e = Event{Kind: EventDebounced}
	}
	for _, b := range d.burst {
		e.MessageID, e.Message, e.Attempt = b.MessageID, b.given, b.attempt
		w.observe(e)
	}
}

var errLostWithSession = errors.New("reprise: the connection it was delivered on is gone")
