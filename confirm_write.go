package reprise

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// serve writes requests until the channel is gone or set aside, or ctx ends,
// beginning with pub unless it is nil. It returns the one that it had taken and
// could not write.
func (s *confirming) serve(ctx context.Context, p *publisher, pub *publication) *publication {
	defer s.conn.Flush()
	for {
		if !s.reserve(ctx) { // for the next request, whenever it comes
			return pub
		}
		if pub == nil {
			pub = s.take(ctx, p.requests)
		}
		if pub == nil || !s.refuse(pub) && !s.divert(p, pub) && !(s.admit(ctx, pub) && s.write(pub)) {
			s.conn.Flush()
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
	s.conn.Flush()
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
	s.conn.Flush()
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
	err := tooLarge(pub, int(s.conn.MaxBody.Load()))
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
	writable := s.conn.Writable()
	select {
	case <-writable:
	default:
		s.conn.Flush()
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
	s.conn.Hold()
	c, err := s.ch.PublishWithDeferredConfirm(pub.exchange, pub.key, true, false, pub.msg.Publishing())
	if err == nil {
		s.sent(pub, c)
		return true
	}
	mine := s.forget(tag, pub)
	if errors.Is(err, amqp.ErrClosed) {
		// At least its last frame was not written, so that the broker has not
		// got a message, and never will have.
		if mine && pub.state.CompareAndSwap(written, queued) {
			pub.returned = nil // that was its like
			return false
		}
		return true
	}
	if mine {
		pub.resolve(fmt.Errorf("%w: %w", ErrUnconfirmed, err))
	}
	// A frame may have been written in part: nothing that follows on this
	// connection can be understood.
	s.conn.End(0)
	return true
}
