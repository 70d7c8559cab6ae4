package consume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/retry"
)

// leases consumes the lease queue of the process. It declares the queue when an attempt first needs it.
type leases struct {
	consumer *Consumer
	start    sync.Once
	stop     context.CancelFunc
	stopped  chan struct{} // closed when run has returned

	mu       sync.Mutex
	attempts map[string]*attemptLease
	ended    *bounded.Map[string, *attemptLease] // late copies may still arrive
	up       chan struct{}                       // closed while the queue is consumed
	trouble  error                               // reason why the queue is not consumed
	left     bool                                // copies may remain in the queue
}

// maxEndedLeases limits the memory for attempts whose copies may still arrive.
const maxEndedLeases = 1000

func newLeases(c *Consumer) *leases {
	return &leases{
		consumer: c, attempts: map[string]*attemptLease{}, ended: bounded.New[string, *attemptLease](maxEndedLeases),
		stopped: make(chan struct{}), up: make(chan struct{}), trouble: errors.New("reprise: the lease queue is not consumed yet"),
	}
}

func (x *leases) add(l *attemptLease) {
	l.id = rand.Text()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attempts[l.id] = l
}

// remove removes an attempt that has ended.
func (x *leases) remove(l *attemptLease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.attempts, l.id)
	if l.sent > 0 {
		x.ended.Put(l.id, l)
	}
	x.left = x.left || l.lost
}

// note records whether copies may remain in the queue.
func (x *leases) note(left bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = x.left || left
}

// ready starts to consume the lease queue, and waits until it is consumed.
func (x *leases) ready(ctx context.Context) error {
	x.start.Do(func() {
		running, stop := context.WithCancel(x.consumer.settling)
		x.stop = stop
		if x.consumer.Tasks.Go(func() { x.run(running) }) != nil {
			close(x.stopped)
		}
	})
	x.mu.Lock()
	up, trouble := x.up, x.trouble
	x.mu.Unlock()
	select {
	case <-up:
		return nil
	default:
	}
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), trouble)
	}
}

// run consumes the lease queue, across any number of connections, until ctx is done.
func (x *leases) run(ctx context.Context) {
	defer close(x.stopped)
	retrier := retry.Retrier{Schedule: x.consumer.Reconnect}
	for ctx.Err() == nil {
		began := time.Now()
		err := x.consume(ctx)
		if ctx.Err() != nil || errors.Is(err, amqpconn.ErrClosed) {
			return
		}
		x.setTrouble(err)
		delay := retrier.Failed(time.Since(began))
		x.consumer.Log.Warn("lease queue interrupted", "error", err, retry.Next(delay))
		_ = retry.Sleep(ctx, delay)
	}
}

func (x *leases) setTrouble(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trouble = err
}

// consume consumes the lease queue on one channel.
func (x *leases) consume(ctx context.Context) error {
	c := x.consumer
	conn, err := c.Link.Get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	acks := ack.New(leaseChannel{ch})
	if err := c.Tasks.Go(func() { _ = acks.Run(ch.Context()) }); err != nil { // after an error, the channel closes
		return err
	}
	defer func() {
		acks.End()
		<-acks.Done()
		if ctx.Err() != nil && x.isClean() && ch.Context().Err() == nil {
			_ = ch.DeleteQueue(context.WithoutCancel(ctx), c.LeaseQueue.Name) // it expires if it is not deleted
		}
		ch.Close(context.WithoutCancel(ctx))
		x.interrupted(acks)
	}()
	if err := c.owner.DeclareLeaseQueue(ctx, c.LeaseQueue); err != nil {
		return fmt.Errorf("lease queue: %w", err)
	}
	deliveries, err := ch.Consume(ctx, c.LeaseQueue.Name, c.Tag+"-leases", 0, nil, func(amqpconn.Deliveries) {})
	if err != nil {
		return err
	}
	x.mu.Lock()
	close(x.up)
	x.mu.Unlock()
	c.Log.Info("holding leases", "lease_queue", c.LeaseQueue.Name)
	for {
		select {
		case in, ok := <-deliveries:
			if !ok {
				if ch.IsClosed() {
					<-ch.Context().Done() // sets the cause
					return context.Cause(ch.Context())
				}
				return errCancelled
			}
			acks.Delivered()
			d := in.Delivery
			x.receive(d, heldCopy{acks, d.Tag, ch.Context()})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaseChannel adapts a channel to ack.Channel.
type leaseChannel struct{ *amqpconn.Channel }

// Sync implements ack.Channel.
func (c leaseChannel) Sync() error { return c.Channel.Sync(c.Channel.Context()) }

// receive passes a copy to its attempt. A copy of an unknown attempt returns to the work queue.
func (x *leases) receive(d amqpconn.Delivery, in heldCopy) {
	token, _ := d.Headers[HeaderLease].(string)
	id, number, _ := strings.Cut(token, "/")
	n, _ := strconv.Atoi(number)
	x.mu.Lock()
	l := x.attempts[id]
	if l == nil {
		l, _ = x.ended.Get(id)
	}
	x.mu.Unlock()
	verb, refused := ack.DeadLetter, true
	if l != nil {
		verb, refused = l.receive(n, in)
	}
	if refused {
		x.note(verb != ack.Ack)
		in.acks.Settle(in.tag, verb)
	}
}

// interrupted records that the channel of the copies has closed.
func (x *leases) interrupted(acks *ack.Acker) {
	x.mu.Lock()
	select {
	case <-x.up:
		x.up = make(chan struct{})
	default:
	}
	all := make([]*attemptLease, 0, len(x.attempts))
	for _, l := range x.attempts {
		all = append(all, l)
	}
	x.mu.Unlock()
	for _, l := range all {
		l.interrupted(acks)
	}
}

// yield is called before the ack of an original, which would let the broker deliver another message. It returns when the session
// has cancelled its consumer, if all slots have leases: the message would wait for hours, while another process is idle.
func (x *leases) yield(ctx context.Context) {
	c := x.consumer
	if !c.isBusy() {
		return
	}
	timeout := time.NewTimer(LastGrace)
	defer timeout.Stop()
	yielded := make(chan struct{})
	select {
	case c.busy <- yielded:
		<-yielded
	case <-ctx.Done():
	case <-c.draining.Done():
	case <-timeout.C: // the session has no consumer at the moment
	}
}

// isBusy reports whether all slots have leases.
func (c *Consumer) isBusy() bool {
	n := 0
	for d := range c.slots.running() {
		if !d.Leased() {
			return false
		}
		n++
	}
	return n == c.Concurrency
}

// waitWhileBusy waits for a free slot.
func (s *session) waitWhileBusy(alive context.Context) error {
	c := s.consumer
	tick := time.NewTicker(c.deadline.every)
	defer tick.Stop()
	for {
		select {
		case slot := <-c.slots.free:
			c.slots.free <- slot
			return nil
		case yielded := <-c.busy:
			close(yielded)
		case <-tick.C:
			s.checkDeadlines(time.Now())
		case <-alive.Done():
			return context.Cause(alive)
		}
	}
}

// isClean reports whether the lease queue contains only copies of settled messages.
func (x *leases) isClean() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.attempts) == 0 && !x.left
}

// close stops the consumption of the lease queue, and waits for at most timeout.
func (x *leases) close(timeout time.Duration) {
	if x == nil {
		return
	}
	x.start.Do(func() { close(x.stopped) })
	if x.stop != nil {
		x.stop()
	}
	wait(x.stopped, timeout, nil)
}
