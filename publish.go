package reprise

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
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
	link     *link
	ctx      context.Context // ends when the link is about to close
	user     string          // whom it publishes as, "" where not known
	timeout  time.Duration
	window   int // how many messages may be in flight
	late     int // see pulse
	detours  *detours
	requests chan *publication
	closed   chan struct{} // closed when run has ended
	aside    []*confirming // that are not served any more, and may still be answered; run's
}

// maxQueued is how many messages may wait to be written besides their callers, so
// that these need not be woken twice.
const maxQueued = 64

func newPublisher(ctx context.Context, c *Client) *publisher {
	l := c.publishing
	return &publisher{
		client: c, link: l, ctx: ctx, user: l.user, timeout: l.cfg.ConfirmTimeout, window: maxInFlight, late: lateBeats, detours: &detours{},
		requests: make(chan *publication, maxQueued), closed: make(chan struct{}),
	}
}

// publication is one message on its way to the broker.
type publication struct {
	exchange, key string
	msg           amqp.Publishing
	wait          *wait            // nil if it is to arrive at once
	state         atomic.Int32     // queued, then written or abandoned
	trial         trial            // it was written in
	detour        *detour          // that it takes; guarded by the detours
	beat          int              // of its channel when it was written, and
	age           int              // how many there were until it was answered
	returned      *UnroutableError // set by a return, before the confirm
	answered      bool             // there was an answer before there was a confirmation
	confirmation  confirmation     // says, once there was an answer, which
	began         time.Time        // zero where nobody wants to know how long it took
	done          chan struct{}    // closed when err is known
	err           error
	took          time.Duration
}

// confirmation is an *amqp.DeferredConfirmation.
type confirmation interface {
	Done() <-chan struct{}
	Acked() bool
}

const (
	queued int32 = iota
	written
	abandoned // its caller has given up
)

func newPublication(exchange, key string, msg amqp.Publishing) *publication {
	return &publication{exchange: exchange, key: key, msg: msg, done: make(chan struct{})}
}

func (p *publication) resolve(err error) {
	p.err = err
	if !p.began.IsZero() {
		p.took = time.Since(p.began)
	}
	close(p.done)
}

// abandon reports whether the message was not, and will not be, written.
func (p *publication) abandon() bool { return p.state.Swap(abandoned) == queued }

// publish returns nil when the broker has confirmed the message and did not
// return it. An answer that is late is waited for if late, which is then
// called, is not nil: a broker that is slow would only be slower for getting
// the message again. It comes, or the channel ends.
func (p *publisher) publish(ctx context.Context, exchange, key string, msg amqp.Publishing, late func()) error {
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
	var err error
	select {
	case p.way(pub).requests <- pub:
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

// or returns the result if there is one, and err if not.
func (p *publication) or(err error) error {
	select {
	case <-p.done:
		return p.err
	default:
		return err
	}
}

func notSent(ctx context.Context) error {
	return fmt.Errorf("reprise: not sent: %w", context.Cause(ctx))
}

// unsent says why nothing was sent within the timeout.
func (p *publisher) unsent() error {
	why := p.link.trouble()
	if why == nil {
		why = ErrStalled
	}
	return fmt.Errorf("%w (not sent within %s)", why, p.timeout)
}

// unanswered says why what was sent was not answered within the timeout.
func (p *publisher) unanswered() error {
	err := fmt.Errorf("%w within %s", ErrUnconfirmed, p.timeout)
	if why := p.link.trouble(); errors.Is(why, ErrBlocked) {
		err = fmt.Errorf("%w: %v", err, why) // which is not to match: it would say that nothing is stored
	}
	return err
}

// run serves requests until p.ctx ends.
func (p *publisher) run() {
	defer close(p.closed)
	ctx := p.ctx
	retry := retrier{schedule: p.link.cfg.Reconnect}
	var next *publication // taken, and not written yet
	var last *confirming  // that is not served any more
	defer func() {
		if next != nil {
			next.resolve(ErrClosed)
		}
		last.leave()
	}()
	for {
		c, err := p.link.get(ctx)
		if err != nil {
			return
		}
		began := time.Now()
		s, err := openConfirming(c, p)
		last.leave()
		last = s
		if err == nil {
			p.link.wg.Go(s.listen)
			next = s.serve(ctx, p, next)
			switch {
			case ctx.Err() != nil:
				return
			case !s.isDead():
				p.setAside(s)
				continue
			}
			if s.confirmed.Load() || s.blamed {
				retry.failures = 0
			}
			err = s.reason
		}
		if c.IsClosed() {
			<-c.lost // the link logs it, and waits before it connects again
			continue
		}
		delay := retry.failed(time.Since(began))
		c.log.Warn("channel closed", "error", err, "next_try", delay)
		if sleep(ctx, delay) != nil {
			return
		}
	}
}

// serve writes requests until the channel is gone or set aside, or ctx ends,
// beginning with pub unless it is nil. It returns the one that it had taken and
// could not write.
func (s *confirming) serve(ctx context.Context, p *publisher, pub *publication) *publication {
	defer s.conn.socket.flush()
	for {
		if !s.reserve(ctx) { // for the next request, whenever it comes
			return pub
		}
		if pub == nil {
			pub = s.take(ctx, p.requests)
		}
		if pub == nil || !s.refuse(pub) && !s.divert(p, pub) && !(s.admit(ctx, pub) && s.write(pub)) {
			s.conn.socket.flush()
			select {
			case <-s.over: // it is, or will be in a moment
			case <-ctx.Done():
			}
			return pub
		}
		pub = nil
	}
}

// reserve takes room for one more message in flight. It returns false when the
// channel takes none any more.
func (s *confirming) reserve(ctx context.Context) bool {
	select {
	case <-s.over:
		return false
	default:
	}
	select {
	case s.room <- struct{}{}:
		return true
	default:
	}
	s.conn.socket.flush()
	select {
	case s.room <- struct{}{}:
		return true
	case <-s.over:
		return false
	case <-ctx.Done():
		return false
	}
}

// take returns the next request, or nil when there will be no more. What was
// written is held as long as there are requests.
func (s *confirming) take(ctx context.Context, requests <-chan *publication) *publication {
	select {
	case pub := <-requests:
		return pub
	default:
	}
	s.conn.socket.flush()
	select {
	case pub := <-requests:
		return pub
	case <-s.over:
		return nil
	case <-ctx.Done():
		return nil
	}
}

// refuse refuses what the broker is known to refuse, for the price of a channel.
func (s *confirming) refuse(pub *publication) bool {
	err := tooLarge(pub, int(s.conn.maxBody.Load()))
	if err == nil {
		return false
	}
	<-s.room
	pub.resolve(err)
	return true
}

// divert leads a message around, if that is needed: see detours.
func (s *confirming) divert(p *publisher, pub *publication) bool {
	if !p.detours.some.Load() || !p.divert(pub) {
		return false
	}
	<-s.room
	return true
}

// admit waits until pub may be written, and reports whether it ever may be.
func (s *confirming) admit(ctx context.Context, pub *publication) bool {
	writable := s.conn.mayWrite()
	select {
	case <-writable:
	default:
		s.conn.socket.flush()
	}
	select {
	case <-writable:
		for s.begin(pub) {
			if pub.wait == nil || !pub.wait.shorten(pub) {
				return true
			}
		}
		return false
	case <-s.over:
		return false
	case <-ctx.Done():
		return false
	}
}

// write reports whether there is nothing more to be done for pub than to wait for
// its answer. If there is, it was not written, and may be on another channel.
func (s *confirming) write(pub *publication) bool {
	if !pub.state.CompareAndSwap(queued, written) {
		<-s.room // its caller has given up
		return true
	}
	// Asked for outside of s.mu: the client holds the lock inside while it
	// waits for listen to take a confirm, and listen needs s.mu.
	tag := s.ch.GetNextPublishSeqNo()
	s.register(tag, pub)
	s.conn.socket.hold()
	c, err := s.ch.PublishWithDeferredConfirm(pub.exchange, pub.key, true, false, pub.msg)
	if err == nil {
		s.sent(pub, c)
		return true
	}
	mine := s.forget(tag, pub)
	if errors.Is(err, amqp.ErrClosed) {
		// At least its last frame was not written, so that the broker has not
		// got a message, and never will have.
		if mine && pub.state.CompareAndSwap(written, queued) {
			return false
		}
		return true
	}
	if mine {
		pub.resolve(fmt.Errorf("%w: %w", ErrUnconfirmed, err))
	}
	// A frame may have been written in part: nothing that follows on this
	// connection can be understood.
	s.conn.end(0)
	return true
}
