package reprise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher publishes on one channel of a link, reopened as often as needed,
// and tells for every message whether the broker has it.
//
//	publish ─► requests ─► run: registers the tag, writes ─────────► broker
//	   ▲                                                               │
//	   └── done ◄── listen: returns before confirms ◄── return, ack ───┘
//
// One goroutine writes, so that no lock is held across a write which the
// broker's flow control may block: callers give up by their own context.
type publisher struct {
	link     *link
	timeout  time.Duration
	log      *slog.Logger
	requests chan *publication
	closed   chan struct{} // closed when run has ended
}

func newPublisher(l *link) *publisher {
	return &publisher{
		link: l, timeout: l.cfg.ConfirmTimeout, log: l.log,
		requests: make(chan *publication), closed: make(chan struct{}),
	}
}

// publication is one message on its way to the broker.
type publication struct {
	exchange, key string
	msg           amqp.Publishing
	state         atomic.Int32     // queued, then written or abandoned
	returned      *UnroutableError // set by a return, before the confirm; owned by listen
	done          chan struct{}    // closed when err is known
	err           error
}

const (
	queued int32 = iota
	written
	abandoned
)

func (p *publication) resolve(err error) {
	p.err = err
	close(p.done)
}

// publish returns nil when the broker has confirmed the message and did not
// return it. An answer that is late is waited for if late, which is then
// called, is not nil: a broker that is slow would only be slower for getting
// the message again. It comes, or the channel ends.
func (p *publisher) publish(ctx context.Context, exchange, key string, msg amqp.Publishing, late func()) error {
	pub := &publication{exchange: exchange, key: key, msg: msg, done: make(chan struct{})}
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case p.requests <- pub:
	case <-p.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%w: it was not sent, there was no usable connection for %s", ErrUnconfirmed, p.timeout)
	}
	for {
		select {
		case <-pub.done:
			return pub.err
		case <-ctx.Done():
			if pub.state.CompareAndSwap(queued, abandoned) {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(ctx))
		case <-timer.C: // once
			if pub.state.CompareAndSwap(queued, abandoned) {
				return fmt.Errorf("%w: it was not sent, the broker took nothing for %s", ErrUnconfirmed, p.timeout)
			}
			if late == nil {
				return fmt.Errorf("%w within %s", ErrUnconfirmed, p.timeout)
			}
			late()
		}
	}
}

// run serves requests until ctx ends, which is when the link closes.
func (p *publisher) run(ctx context.Context) {
	defer close(p.closed)
	retry := retrier{schedule: p.link.cfg.Reconnect}
	for {
		c, err := p.link.get(ctx)
		if err != nil {
			return
		}
		began := time.Now()
		s, err := openConfirming(c)
		if err == nil {
			p.link.wg.Go(s.listen)
			s.serve(ctx, p.requests)
			if s.confirmed.Load() {
				retry.failures = 0
			}
			err = s.reason
		}
		if c.IsClosed() {
			<-c.lost // the link logs it, and waits before it connects again
			continue
		}
		delay := retry.failed(time.Since(began))
		p.log.Warn("channel closed", "error", err, "next_try", delay)
		if sleep(ctx, delay) != nil {
			return
		}
	}
}

// serve writes requests until the channel is gone.
func (s *confirming) serve(ctx context.Context, requests <-chan *publication) {
	for {
		select {
		case s.room <- struct{}{}: // for the next request, whenever it comes
		case <-s.dead:
			return
		}
		if !s.next(ctx, requests) {
			<-s.dead // the link is about to close the channel
			return
		}
	}
}

// next writes one request. It returns false when there will be no more.
func (s *confirming) next(ctx context.Context, requests <-chan *publication) bool {
	select {
	case <-s.conn.mayWrite():
	case <-s.dead:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case pub := <-requests:
		s.write(pub)
		return true
	case <-s.dead:
		return false
	case <-ctx.Done():
		return false
	}
}

func (s *confirming) write(pub *publication) {
	if !pub.state.CompareAndSwap(queued, written) {
		<-s.room // its caller has given up
		return
	}
	// Asked for outside of s.mu: the client holds the lock inside while it
	// waits for listen to take a confirm, and listen needs s.mu.
	tag := s.ch.GetNextPublishSeqNo()
	s.register(tag, pub)
	err := s.ch.Publish(pub.exchange, pub.key, true, false, pub.msg)
	if err == nil {
		return
	}
	if s.forget(tag) {
		pub.resolve(fmt.Errorf("%w: %w", ErrUnconfirmed, err))
	}
	if !errors.Is(err, amqp.ErrClosed) {
		// A frame may have been written in part: nothing that follows on this
		// connection can be understood.
		s.conn.end(0)
	}
}
