package consume

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// dispatch starts an attempt for each delivery of the subscription, when the admission permits it. It returns nil when
// ctx is done, and otherwise the reason to end the subscription.
//
// All waits are in one select. If dispatch waited elsewhere for a slot or the limiter, it could not requeue a message
// before the acknowledgement timeout. The broker would then close the channel and redeliver the message.
func (s *session) dispatch(ctx, alive context.Context) error {
	c := s.consumer
	tick := time.NewTicker(c.deadline.every)
	defer tick.Stop()
	s.checkDeadlines(time.Now())
	for _, d := range s.pending.take() {
		s.receive(d)
	}
	next := c.admission(alive, s.subscription.narrow)
	defer next.end()
	for {
		var slots <-chan *slot
		if d, _ := s.first(); d != nil || s.subscription.searches {
			slots = next.slots()
		}
		select {
		case in, ok := <-s.subscription.deliveries:
			if !ok {
				return s.closeReason()
			}
			s.receive(s.delivery(s.subscription, in, time.Now()))
			if d, _ := s.first(); d == nil {
				continue
			}
			if free := next.slots(); free != nil { // otherwise the admission has waited for a delivery whose bulkhead is not full
				select {
				case slot := <-free: // without another round, whose select costs as much as the rest of the dispatch
					next.take(slot)
				default:
					continue
				}
			}
		case <-s.subscription.ended:
			return s.closeReason()
		case now := <-s.bursts.due():
			s.pending.add(s.bursts.pop(now)...)
			if next.slots() != nil {
				continue
			}
		case <-c.vacated:
			if next.slots() != nil {
				continue
			}
		case now := <-tick.C:
			s.checkDeadlines(now)
			if s.pending.n == 0 {
				next.releaseSlots()
				if s.canWiden() {
					return errWiden
				}
			}
			continue
		case <-s.heldMore:
			if int(s.subscription.held.Load()) > s.subscription.prefetch/2 {
				return errWiden // the prefetch of a new subscription does not include the held deliveries
			}
			continue
		case slot := <-slots:
			next.take(slot)
		case permitted := <-next.permit:
			next.answered(permitted)
		case yielded := <-c.busy:
			if c.isBusy() {
				s.yielded = yielded
				return errBusy
			}
			close(yielded)
			continue
		case <-c.pauser.paused():
			if left, _ := c.pauser.remaining(); left > 0 {
				return errPaused
			} // otherwise remaining has reset the expired pause, and refused deliveries may start
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

// receive queues a delivery for a slot, or first adds it to a burst of equal messages. It holds a delivery whose message is
// still being handled.
func (s *session) receive(d *Delivery) {
	if s.holdRunning(d) {
		return
	}
	if s.bursts.window == 0 || d.gathered || s.subscription.narrow || d.isSuspect() {
		s.pending.add(d)
		return
	}
	d.read()
	key := ""
	if d.Err == nil {
		key, d.Err = s.consumer.owner.Key(d)
	}
	if key == "" {
		d.gathered = true
		s.pending.add(d)
		return
	}
	s.bursts.add(key, d)
}

// canWiden reports whether a new subscription could receive more messages than the current subscription. It returns
// true for a narrow subscription whose message only waits to be settled, because the message would block the others
// until its copy is confirmed. It also returns true for a subscription whose prefetch is below Prefetch, when at most
// one message is unsettled.
func (s *session) canWiden() bool {
	n := s.acks.Unsettled()
	if s.subscription.narrow {
		return s.consumer.slots.taken() == 0 && n > 0 && n < s.consumer.Prefetch
	}
	return s.subscription.prefetch < s.consumer.Prefetch && n <= 1
}

// advance starts an attempt for the first startable delivery, if it is admitted. An error is the
// reason why another subscription must start the attempt.
func (s *session) advance(next *admission) error {
	if s.subscription.searches && next.slots() == nil {
		if err := s.search(next.alive); err != nil {
			return err
		}
	}
	d, i := s.first()
	if d == nil {
		return nil
	}
	switch alone := d.isSuspect(); {
	case s.subscription.searches && !next.ready():
		return nil
	case s.subscription.searches:
	case s.subscription.narrow && !alone && !s.suspected && !(s.careful && d.Tag == 1) && !s.consumer.pauser.probing() &&
		s.pending.find((*Delivery).isSuspect) == nil: // otherwise, each suspected message would let the session receive more messages
		return errWiden
	case alone && (!s.subscription.narrow || len(s.consumer.Lanes) > 0):
		s.searchFrom, s.chosen = int(d.lane), d
		return errSuspect
	case !next.ready():
		return nil
	}
	if next.begin(d) {
		// The first message of a narrow subscription may differ from the suspected message. If the
		// session requeued it, the broker could deliver both messages in turn indefinitely.
		s.suspected = false
		s.pending.remove(d, i)
	}
	return nil
}

// maxIdle limits the idle goroutines of a consumer.
const maxIdle = 256

// start runs an attempt on an idle goroutine, or on a new one. An attempt needs more stack than a new goroutine has, and copies
// of a growing stack were a sixth of the CPU time of a retry.
func (c *Consumer) start(d *Delivery) {
	select {
	case c.next <- d:
	default:
		go c.run(d)
	}
}

// run runs an attempt, and further attempts until the consumer no longer starts any. While the goroutine is idle, kept occupies a
// quarter of its stack, so that the garbage collector does not halve the stack.
func (c *Consumer) run(d *Delivery) {
	var kept [3 << 10]byte
	defer runtime.KeepAlive(&kept)
	for {
		d.attempt()
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		select {
		case d = <-c.next:
			c.idle.Add(-1)
		case <-c.draining.Done():
			return
		}
	}
}

// attempt calls the owner to handle and settle the delivery.
func (d *Delivery) attempt() {
	c := d.session.consumer
	defer c.attempts.Done() // also after runtime.Goexit
	defer func() { d.lease.release() }()
	handling := c.handling
	if t := d.term; t != nil {
		if !t.begin(d) {
			return
		}
		d.arrived, handling = time.Now(), t.handling
	}
	if err := d.checkSource(); err != nil {
		d.End(ErrNotAttempted, 0, nil)
		d.session.end(err)
		return
	}
	d.read()
	c.owner.Handle(handling, d)
}

// ErrStream means that the queue is a stream. A consumer would skip its earlier messages, and a stream ignores acks.
var ErrStream = errors.New("queue is a stream, and a worker would skip its earlier messages (bind a quorum queue to the same exchange, or use a stream client)")

// checkSource returns ErrStream if the queue is a stream. It asks the broker only if the message has the header that RabbitMQ
// adds in a stream. The header does not suffice, because a program can copy the message to another queue.
func (d *Delivery) checkSource() error {
	if _, found := d.Headers["x-stream-offset"]; !found {
		return nil
	}
	return d.session.checkQueue()
}

// closeReason returns the reason why the channel closed, or errCancelled if the broker cancelled only the consumer.
func (s *session) closeReason() error {
	if s.ch.IsClosed() {
		<-s.ctx.Done() // endWithChannel sets the cause
		return context.Cause(s.ctx)
	}
	return errCancelled
}

// deadline determines when deliveries must be settled, so that the broker does not close the channel.
type deadline struct {
	every, after time.Duration // interval of checks; age at which a delivery is overdue
}

// Deadline returns the age at which an unsettled delivery is overdue. An overdue delivery that still waits for an
// attempt is requeued. A negative timeout means that the broker has no acknowledgement timeout.
func Deadline(timeout time.Duration) time.Duration { return newDeadline(timeout).after }

// noDeadline is the deadline without an acknowledgement timeout.
const noDeadline = math.MaxInt64

func (d deadline) exists() bool { return d.after != noDeadline }

const defaultTimeout = 30 * time.Minute

func newDeadline(timeout time.Duration) deadline {
	if timeout < 0 {
		return deadline{every: defaultTimeout / 20, after: noDeadline}
	}
	return deadline{every: timeout / 20, after: timeout / 5 * 4}
}

// checkDeadlines reports overdue deliveries that handlers are processing, and requeues overdue deliveries that still
// wait for an attempt.
func (s *session) checkDeadlines(now time.Time) {
	c := s.consumer
	s.checkRepeated(now)
	overdue := func(d *Delivery) bool { return now.Sub(d.arrived) >= c.deadline.after }
	for d := range c.slots.running() {
		if d.session == s && !d.reported && overdue(d) && !d.Leased() {
			d.reported = true
			c.owner.TimeoutNear(d, now.Sub(d.arrived))
		}
	}
	n := s.pending.deleteFunc(func(d *Delivery) bool {
		if overdue(d) {
			d.Requeue()
			return true
		}
		return false
	})
	if n > 0 {
		c.Log.Warn("waited too long to begin", "requeued", n, "timeout", c.Timeout)
	}
}

// delivery returns a new delivery. The method read parses its marks.
func (s *session) delivery(sub subscription, in amqpconn.Incoming, now time.Time) *Delivery {
	d := s.received(sub, in.Delivery, now)
	if len(s.consumer.Lanes) > 0 {
		d.lane = int32(laneOf(in.ConsumerTag))
		d.Source = s.consumer.Lanes[d.lane]
	}
	return d
}

func (s *session) received(sub subscription, in amqpconn.Delivery, now time.Time) *Delivery {
	s.acks.Delivered()
	d := s.consumer.owner.New()
	d.Delivery, d.session, d.arrived, d.inTime, d.heldOf = in, s, now, s.inTime(now), sub.held
	d.Queue, d.FrameSize = s.consumer.Queue, int32(s.conn.FrameSize())
	return d
}

// inTime returns the context of deliveries that arrive now. Deliveries that arrive shortly after each other share it,
// because a timer for each delivery would be expensive.
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
