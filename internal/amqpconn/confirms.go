package amqpconn

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	// ErrNacked means that the broker refused a message.
	ErrNacked = errors.New("reprise: the broker refused the message (nack)")

	// ErrNotWritten means that a publication was not written, so the broker will never receive it.
	ErrNotWritten = errors.New("not written")
)

// Confirming is a channel in confirm mode. It avoids these faults of the client:
//
//   - The client reports confirms in the order of their tags. One message without a confirm therefore delays the
//     confirms of all later messages, and a following cumulative ack turns a delayed nack into an ack. The
//     DeferredConfirmation of each publication has neither fault, so Confirming uses it.
//   - The client reports all messages in flight as refused when their channel closes.
//   - The client drops a return that is not received for 5 s, so an unroutable message would count as confirmed. A
//     publication in flight has at most one return, so a buffer with a place for each publication never overflows.
//
// The broker returns an unroutable message, and then confirms it. A return does not carry a delivery tag, so it counts
// for every publication in flight with the same exchange, key, message id and body. At worst, this causes a needless
// republication, which creates a duplicate with the same id. A wrong confirm would lose a message.
type Confirming struct {
	conn *Conn
	raw  *amqp.Channel

	mu       sync.Mutex // not locked during a call to the client
	inFlight map[uint64]*Publication
	returns  <-chan amqp.Return

	ended chan struct{} // closed when the channel has closed
	err   error         // the reason; valid after ended is closed
}

// Publication is a message to publish. The caller must not change Exchange, RoutingKey or Message while the message is
// in flight.
type Publication struct {
	Exchange, RoutingKey string
	Message              *Message

	tag          uint64
	confirmation *amqp.DeferredConfirmation
	returned     *Return
}

// Return is the result of a publication that the broker could not route.
type Return struct {
	Code int    // AMQP reply code
	Text string // the reason from the broker
}

func (r *Return) Error() string { return fmt.Sprintf("returned: %d %s", r.Code, r.Text) }

// OpenConfirming opens a channel in confirm mode. The parameter window is the maximum number of publications in flight.
func (c *Conn) OpenConfirming(window int) (*Confirming, error) {
	raw, err := c.openRaw()
	if err != nil {
		return nil, err
	}
	s := &Confirming{
		conn: c, raw: raw, inFlight: map[uint64]*Publication{}, ended: make(chan struct{}),
		returns: raw.NotifyReturn(make(chan amqp.Return, window)),
	}
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	if err := c.askConnection(func() error { return raw.Confirm(false) }); err != nil {
		c.closeRaw(raw)
		return nil, translated(err)
	}
	err = c.tasks.Go(func() {
		s.err = ErrGone
		if reason, ok := <-closes; ok {
			s.err = ended(reason)
		}
		close(s.ended)
	})
	return s, err
}

// Publish writes a mandatory, persistent message. The socket may buffer the write until Flush. After ErrNotWritten the
// caller may republish the message. After any other error the broker may have received the message, and the connection
// closes. Publish is not safe for concurrent use.
func (s *Confirming) Publish(p *Publication) error {
	p.tag = s.raw.GetNextPublishSeqNo()
	s.mu.Lock()
	s.inFlight[p.tag] = p // before its return can arrive
	s.mu.Unlock()
	s.conn.socket.startBuffering()
	confirmation, err := s.raw.PublishWithDeferredConfirm(p.Exchange, p.RoutingKey, true, false, p.Message.publishing())
	if err == nil {
		p.confirmation = confirmation
		return nil
	}
	s.mu.Lock()
	delete(s.inFlight, p.tag)
	p.returned = nil // any return belongs to an equal message
	s.mu.Unlock()
	s.Flush()
	if errors.Is(err, amqp.ErrClosed) {
		return ErrNotWritten // at least the last frame was not written
	}
	// The client may have written only part of a frame, and the broker could then not parse further frames.
	s.conn.End(0)
	return translated(err)
}

// Flush writes the buffered data. The publisher must call it before it waits.
func (s *Confirming) Flush() { s.conn.socket.flush() }

// Answered returns a channel that is closed when the broker has answered, or the AMQP channel has closed. Answered must
// only be called after Publish has succeeded.
func (p *Publication) Answered() <-chan struct{} { return p.confirmation.Done() }

// Result returns nil for a confirmed publication, or else a *Return, ErrNacked or the error of Err. The caller must
// call it once for each publication, after Answered is closed.
func (s *Confirming) Result(p *Publication) error {
	acked := p.confirmation.Acked()
	closed := !acked && s.raw.IsClosed() // check this after Acked
	s.mu.Lock()
	s.takeReturns()
	delete(s.inFlight, p.tag)
	returned := p.returned
	s.mu.Unlock()
	switch {
	case returned != nil:
		return returned
	case acked:
		return nil
	case closed:
		return s.Err()
	}
	return ErrNacked
}

// takeReturns applies the received returns. The client delivers a return before the confirm of its message, on the same
// goroutine. The return of a confirmed message is therefore already in the buffer.
func (s *Confirming) takeReturns() {
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				s.returns = nil
				return
			}
			for _, p := range s.inFlight {
				if p.Exchange == r.Exchange && p.RoutingKey == r.RoutingKey &&
					p.Message.MessageID == r.MessageId && bytes.Equal(p.Message.Body, r.Body) {
					p.returned = &Return{Code: int(r.ReplyCode), Text: r.ReplyText}
				}
			}
		default:
			return
		}
	}
}

// IsClosed reports whether the channel is closed. Ended may close a moment later.
func (s *Confirming) IsClosed() bool { return s.raw.IsClosed() }

// Ended returns a channel that is closed when the AMQP channel has closed.
func (s *Confirming) Ended() <-chan struct{} { return s.ended }

// Err waits until the channel has closed, and returns the reason.
func (s *Confirming) Err() error {
	<-s.ended
	return s.err
}

// Close closes the channel and waits for the broker's answer.
func (s *Confirming) Close() { s.conn.closeRaw(s.raw) }

// Extra is a semaphore for additional, non-essential channels of the connection. Send to Extra to reserve a channel,
// and receive to release it.
func (c *Conn) Extra() chan struct{} { return c.extra }

// maxExtraChannels is the maximum number of additional channels of a connection. The broker limits the number of
// channels of a connection (RabbitMQ: 2047 by default). Half of the additional channels are for bulkheads
// (publish.maxBulkheads).
const maxExtraChannels = 128
