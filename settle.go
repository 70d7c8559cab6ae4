package reprise

import (
	"cmp"
	"errors"
	"time"

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
		w.log.Info("given back", "message_id", d.MessageId, "attempt", d.attempt, "error", s.text)
		d.giveBack()
		w.settled(Event{Kind: EventGivenBack, Err: s.err}, d)
		return
	}
	f := w.failure(d, s.text, took)
	var c *replacement
	err := guard("strategy or policy", func() (err error) {
		c, err = w.choose(d, f, s)
		return err
	})
	if err != nil {
		// A message whose own headers fill the frame, or a part of another
		// package that failed.
		w.log.Error("cannot be settled", "message_id", d.MessageId, "attempt", d.attempt, "error", err)
		w.parkUnmarked(d, f, err)
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
		w.log.Error("Acked failed", "message_id", d.MessageId, "attempt", d.attempt, "error", bad)
	}
	return err == nil
}

// choose decides what takes a failed delivery's place: another attempt, if one is
// allowed and possible, or a copy that is parked.
func (w *Worker) choose(d *delivery, f topology.Failure, s said) (*replacement, error) {
	var hop topology.Hop
	var err error
	decision := w.decide(d, s, func(delay time.Duration) time.Duration {
		if hop, err = w.cfg.Strategy.Route.Wait(d.at, delay); err != nil {
			return delay
		}
		return hop.Delay
	})
	if decision.Retry {
		if err == nil {
			var c *replacement
			if c, err = w.retry(d, f, s, hop); err == nil {
				return c, nil
			}
		}
		f.Error += "\n\nparked, because it cannot be retried: " + err.Error()
	}
	f.Reason = cmp.Or(s.reason, decision.Reason)
	c, err := w.fill(d, w.cfg.Strategy.Route.Failed(d.at), f, s.headers, w.cfg.Strategy.Marks.Park, roomForDelivery)
	c.kind = parked
	return c, err
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

// retry makes what brings a message back over a hop.
func (w *Worker) retry(d *delivery, f topology.Failure, s said, hop topology.Hop) (*replacement, error) {
	if hop.Way != topology.Copy {
		return &replacement{hop: hop, f: f, kind: retried}, nil
	}
	c, err := w.fill(d, hop, f, s.headers, w.cfg.Strategy.Marks.Retry, roomForStations(hop.Stations))
	c.kind = retried
	return c, err
}

// failure is the record of an attempt, for the marks.
func (w *Worker) failure(d *delivery, text string, took time.Duration) topology.Failure {
	f := topology.Failure{
		AttemptError: topology.AttemptError{
			Attempt:  d.attempt,
			Time:     time.Now(),
			Error:    text,
			Host:     w.host,
			Duration: took,
		},
		History: d.history,
		Queue:   w.cfg.Queue,
	}
	f.Exchange, f.RoutingKey = d.history.OriginAt(d.origin)
	return f
}

// parkUnmarked parks a copy with nothing written on it. It is the last resort:
// left unacknowledged, the delivery would take a place of the prefetch for as
// long as the session lives, until nothing else is delivered.
func (w *Worker) parkUnmarked(d *delivery, f topology.Failure, reason error) {
	c, err := w.unmarked(d, f, reason)
	if err != nil {
		w.log.Error("cannot be parked", "message_id", d.MessageId, "attempt", d.attempt, "error", err)
		w.settled(Event{Kind: EventDropped, Err: err}, d)
		return
	}
	w.replace(d, c)
}

// unmarked makes a copy that is parked with nothing written on it. Why, is told
// where people look, unless reason is nil.
func (w *Worker) unmarked(d *delivery, f topology.Failure, reason error) (c *replacement, err error) {
	if reason != nil {
		f.Error += "\n\nparked, because it cannot be settled: " + reason.Error()
	}
	err = guard("strategy", func() (err error) {
		bare := func(headers topology.Table, _ topology.Failure) topology.Table { return headers }
		// It came in one frame, so it fits into one.
		c, err = w.fill(d, w.cfg.Strategy.Route.Failed(d.at), f, nil, bare, 0)
		c.kind, c.unmarked = parked, true
		return err
	})
	return c, err
}

// settled tells the observer what became of a delivery, and of those that were
// handled with it.
func (w *Worker) settled(e Event, d *delivery) {
	e.MessageID, e.Attempt = d.MessageId, d.attempt
	w.observe(e)
	if e.Kind == EventDone || e.Kind == EventRetried || e.Kind == EventParked {
		e = Event{Kind: EventDebounced}
	}
	for _, b := range d.burst {
		e.MessageID, e.Attempt = b.MessageId, b.attempt
		w.observe(e)
	}
}

var errLostWithSession = errors.New("reprise: the connection it was delivered on is gone")
