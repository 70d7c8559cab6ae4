package reprise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

// publisher publishes on one channel of a link, and tells for every message whether the
// broker has it. The channel is reopened as often as needed, and replaced where it gives
// no answers (see confirming.look).
//
//	send ─► requests ─► serve: registers the tag, writes ─────────► broker
//	                                                                  │
//	await ◄── done ◄── listen: returns before confirms ◄── return, ack ┘
//
// One goroutine writes, so that no lock is held across a write which the
// broker's flow control may block: callers give up by their own context. It
// writes in the order in which it is given messages.
type publisher struct {
	client   *Client
	link     *amqpconn.Link
	ctx      context.Context // ends when the link is about to close
	user     string          // whom it publishes as, "" where not known
	timeout  time.Duration
	window   int // how many messages may be in flight
	detours  *detours
	onDetour bool // it is the way to one destination that does not confirm
	requests chan *publication
	closed   chan struct{} // closed when run has ended
}

// maxQueued is how many messages may wait to be written besides their callers, so
// that these need not be woken twice.
const maxQueued = 64

func newPublisher(ctx context.Context, c *Client) *publisher {
	l := c.publishing
	return &publisher{
		client: c, link: l, ctx: ctx, user: l.User(), timeout: c.cfg.ConfirmTimeout, window: maxInFlight, detours: &detours{},
		requests: make(chan *publication, maxQueued), closed: make(chan struct{}),
	}
}

// publish returns nil when the broker has confirmed the message and did not
// return it. An answer that is late is waited for if late, which is then
// called, is not nil: a broker that is slow would only be slower for getting
// the message again. It comes, or the channel ends.
func (p *publisher) publish(ctx context.Context, exchange, key string, msg amqpconn.Message, late func()) error {
	pub := newPublication(exchange, key, msg)
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	if err := p.send(ctx, pub, timer.C); err != nil {
		return err
	}
	return p.await(ctx, pub, timer.C, late)
}

// send hands a message over to be written. With an error it will not be.
func (p *publisher) send(ctx context.Context, pub *publication, expired <-chan time.Time) error {
	return p.sendBy(ctx, p.way(pub), pub, expired)
}

// sendBy is send on the way that was found.
func (p *publisher) sendBy(ctx context.Context, way *publisher, pub *publication, expired <-chan time.Time) error {
	var err error
	select {
	case way.requests <- pub:
		return nil
	case <-p.closed:
		err = ErrClosed
	case <-ctx.Done():
		err = notSent(ctx)
	case <-expired:
		err = p.unsent()
	}
	p.leave(pub)
	return err
}

// await returns what became of a message that was handed over. What is known
// counts, however late it is.
func (p *publisher) await(ctx context.Context, pub *publication, expired <-chan time.Time, late func()) error {
	defer p.leave(pub)
	closed := p.closed
	for {
		select {
		case <-pub.done:
			return pub.err
		case <-closed:
			if pub.state.CompareAndSwap(queued, abandoned) {
				return ErrClosed
			}
			closed = nil // what was written gets a result
		case <-ctx.Done():
			if pub.abandon() {
				return notSent(ctx)
			}
			return pub.or(fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(ctx)))
		case <-expired:
			if late == nil {
				if pub.abandon() {
					return p.unsent()
				}
				return pub.or(p.unanswered())
			}
			if pub.state.CompareAndSwap(queued, abandoned) {
				return p.unsent()
			}
			late()
			expired = nil
		}
	}
}

// unsent says why nothing was sent within the timeout.
func (p *publisher) unsent() error {
	why := p.link.Trouble()
	if why == nil {
		why = ErrStalled
	}
	return fmt.Errorf("%w (not sent within %s)", why, p.timeout)
}

// unanswered says why what was sent was not answered within the timeout.
func (p *publisher) unanswered() error {
	err := fmt.Errorf("%w within %s", ErrUnconfirmed, p.timeout)
	if why := p.link.Trouble(); errors.Is(why, ErrBlocked) {
		err = fmt.Errorf("%w: %v", err, why) // which is not to match: it would say that nothing is stored
	}
	return err
}

// run serves requests until p.ctx ends.
func (p *publisher) run() {
	defer close(p.closed)
	ctx := p.ctx
	retrier := retry.Retrier{Schedule: p.client.cfg.Reconnect}
	var next *publication // taken, and not written yet
	var last *confirming  // that is not served any more
	defer func() {
		if next != nil {
			next.resolve(ErrClosed)
		}
		last.leave()
	}()
	for {
		if p.onDetour && next == nil { // it has no channel of those that are few while nobody needs it
			select {
			case next = <-p.requests:
			case <-ctx.Done():
				return
			}
		}
		c, err := p.link.Get(ctx)
		if err != nil {
			return
		}
		began := time.Now()
		s, err := p.open(ctx, c)
		last.leave()
		last = s
		if err == nil {
			p.client.tasks.WaitGroup().Go(s.listen)
			next = s.serve(ctx, p, next)
			switch {
			case ctx.Err() != nil:
				return
			case !s.isDead():
				p.setAside(ctx, s)
				continue
			}
			if s.confirmed.Load() || s.blamed {
				retrier.Reset()
			}
			err = s.reason
		}
		if c.Closing() {
			<-c.Lost() // the link logs it, and waits before it connects again
			continue
		}
		if ctx.Err() != nil {
			return
		}
		delay := retrier.Failed(time.Since(began))
		c.Logger().Warn("channel closed", "error", err, retry.Next(delay))
		if retry.Sleep(ctx, delay) != nil {
			return
		}
	}
}
