package consume

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// dispatch starts an attempt for each delivery of the subscription, as far as admission
// allows. It returns nil when ctx has ended, and else why the subscription has to end.
//
// It waits in one select only. While it waited for a slot or the limiter elsewhere, it could
// not give back a message whose acknowledgement timeout is near: the broker would close the
// channel and deliver the message a second time.
func (s *session) dispatch(ctx, alive context.Context) error {
	c := s.consumer
	tick := time.NewTicker(c.deadline.every)
	defer tick.Stop()
	s.remind(time.Now())
	held := s.pending
	s.pending = nil
	for _, d := range held {
		s.receive(d)
	}
	next := c.admission(alive, s.subscription.narrow)
	defer next.end()
	for {
		var slots <-chan *slot
		if len(s.pending) > 0 {
			slots = next.slots()
		}
		select {
		case in, ok := <-s.subscription.deliveries:
			if !ok {
				return s.whyClosed()
			}
			s.receive(s.delivery(in, time.Now()))
			continue
		case now := <-s.bursts.due():
			s.pending = append(s.pending, s.bursts.pop(now)...)
			continue
		case now := <-tick.C:
			s.remind(now)
			if len(s.pending) == 0 {
				next.vacate()
				if s.canWiden() {
					return errWiden
				}
			}
			continue
		case slot := <-slots:
			next.take(slot)
		case permitted := <-next.permit:
			next.answered(permitted)
		case <-c.gate.paused():
			if left, _ := c.gate.left(); left > 0 {
				return errPaused
			} // else it is over, and what was refused meanwhile may begin
		case <-alive.Done():
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			return nil
		}
		if err := s.advance(next); err != nil {
			return err
		}
	}
}

// receive has a delivery wait for a slot, or before that for others like it.
func (s *session) receive(d *Delivery) {
	if s.bursts.window == 0 || d.gathered || s.subscription.narrow || d.suspect() {
		s.pending = append(s.pending, d)
		return
	}
	d.read()
	key := ""
	if d.Err == nil {
		key, d.Err = s.consumer.owner.Key(d)
	}
	if key == "" {
		d.gathered = true
		s.pending = append(s.pending, d)
		return
	}
	s.bursts.add(key, d)
}

// canWiden reports whether another subscription may have more messages: a narrow one
// whose message is not being handled and waits to be settled, since it would block the
// others for as long as its copy is not confirmed; and one that was given less than
// Prefetch because of others that were unsettled.
func (s *session) canWiden() bool {
	n := s.acks.Unsettled()
	if s.subscription.narrow {
		return s.consumer.slots.taken() == 0 && n > 0 && n < s.consumer.Prefetch
	}
	return s.subscription.prefetch < s.consumer.Prefetch && n <= 1
}

// advance begins an attempt for the first pending delivery, if it is admitted. It returns
// why another subscription has to begin it.
func (s *session) advance(next *admission) error {
	if len(s.pending) == 0 {
		return nil
	}
	d := s.pending[0]
	switch alone := d.suspect(); {
	case s.subscription.narrow && !alone && !s.suspected && !(s.careful && d.Tag == 1) && !s.consumer.gate.probing():
		return errWiden
	case !s.subscription.narrow && alone:
		return errSuspect
	case !next.ready():
		return nil
	}
	if next.begin(d) {
		// The first message of a narrow subscription may be another than the one that was
		// suspected. If it were given back, both could be fetched and given back for ever.
		s.suspected = false
		s.pending[0] = nil
		if len(s.pending) == 1 {
			s.pending = s.pending[:0] // keeps its room
		} else {
			s.pending = s.pending[1:]
		}
	}
	return nil
}

// attempt has the delivery handled and settled.
func (d *Delivery) attempt() {
	c := d.session.consumer
	defer c.attempts.Done() // also after runtime.Goexit
	d.read()
	c.owner.Handle(c.handling, d)
}

// whyClosed tells a cancelled consumer from a closed channel.
func (s *session) whyClosed() error {
	if s.ch.IsClosed() {
		<-s.ctx.Done() // lose is about to say why
		return context.Cause(s.ctx)
	}
	return errCancelled
}

// deadline is when deliveries have to be settled, or else the broker closes the channel.
type deadline struct {
	every, after time.Duration // deliveries are looked at; action is taken
}

// Deadline returns the time after which an unsettled delivery is given back, with this
// acknowledgement timeout; negative: there is none.
func Deadline(timeout time.Duration) time.Duration { return newDeadline(timeout).after }

// never is the deadline if there is no acknowledgement timeout.
const never = math.MaxInt64

func (d deadline) exists() bool { return d.after != never }

const defaultTimeout = 30 * time.Minute

func newDeadline(timeout time.Duration) deadline {
	if timeout < 0 {
		return deadline{every: defaultTimeout / 20, after: never}
	}
	return deadline{every: timeout / 20, after: timeout / 5 * 4}
}

// remind reports handlers that have had a message for so long that the broker is about to
// close the channel, and gives back messages that have waited so long to begin.
func (s *session) remind(now time.Time) {
	c := s.consumer
	overdue := func(d *Delivery) bool { return now.Sub(d.arrived) >= c.deadline.after }
	for d := range c.slots.running() {
		if d.session == s && !d.reminded && overdue(d) {
			d.reminded = true
			c.owner.TimeoutNear(d, now.Sub(d.arrived))
		}
	}
	waiting := len(s.pending)
	s.pending = slices.DeleteFunc(s.pending, func(d *Delivery) bool {
		if overdue(d) {
			d.GiveBack()
			return true
		}
		return false
	})
	if n := waiting - len(s.pending); n > 0 {
		c.Log.Warn("waited too long to begin", "given_back", n, "timeout", c.Timeout)
	}
}

// delivery is what has just come in. None of it is read before read.
func (s *session) delivery(in amqpconn.Incoming, now time.Time) *Delivery {
	s.acks.Delivered()
	d := s.consumer.owner.New()
	d.Delivery, d.session, d.arrived, d.inTime = amqpconn.NewDelivery(in), s, now, s.inTime(now)
	return d
}

// inTime returns the context of what comes in now. Deliveries share it for a while: a timer
// for each of them would be most of what it costs to wait.
func (s *session) inTime(now time.Time) context.Context {
	deadline := s.consumer.deadline
	if !deadline.exists() {
		return s.ctx
	}
	if !now.Before(s.shared.until) {
		s.shared.until = now.Add(deadline.every)
		ctx, cancel := context.WithDeadlineCause(s.ctx, s.shared.until.Add(deadline.after), ErrOverdue)
		context.AfterFunc(ctx, cancel)
		s.shared.ctx = ctx
	}
	return s.shared.ctx
}
