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

	// ErrNotWritten means that a publication was not written: the broker will never have it.
	ErrNotWritten = errors.New("not written")
)

// Confirming is a channel in confirm mode. The client has several faults that matter here:
//
//   - It reports confirms in the order of their tags, so that one message without a confirm
//     holds back the confirms of all after it, and a cumulative ack that follows makes a
//     nack that it has held back an ack. What it returns for each publication (a
//     DeferredConfirmation) has neither fault, and is used instead.
//   - It reports all that is in flight on a channel that ends as refused.
//   - It drops a return that nobody takes for 5 s, which would make an unroutable message a
//     confirmed one. There is at most one return for each publication in flight, so a buffer
//     for all of them is never full.
//
// The broker confirms an unroutable message, too, after it has returned it. A return carries
// no number, so it counts for every publication in flight that equals it in exchange, key,
// message id and body: to publish once too often makes a duplicate with the same id, to
// believe a confirm once too often makes a loss.
type Confirming struct {
	conn *Conn
	raw  *amqp.Channel

	mu       sync.Mutex // not held across a call into the client
	inFlight map[uint64]*Publication
	returns  <-chan amqp.Return

	ended chan struct{} // closed when the channel is gone
	err   error         // why; valid once ended is closed
}

// Publication is a message to publish. Exchange, RoutingKey and Message must not change
// while it is in flight.
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
	Text string // the broker's words
}

func (r *Return) Error() string { return fmt.Sprintf("returned: %d %s", r.Code, r.Text) }

// OpenConfirming opens a channel in confirm mode for at most window publications in flight.
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
	if err := c.insist(func() error { return raw.Confirm(false) }); err != nil {
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

// Publish writes a mandatory, persistent message. The write may be held until Flush. After
// ErrNotWritten the publication may be published again; after another error the broker may
// have it, and the connection ends. Publish must not be called concurrently.
func (s *Confirming) Publish(p *Publication) error {
	p.tag = s.raw.GetNextPublishSeqNo()
	s.mu.Lock()
	s.inFlight[p.tag] = p // before its return may come
	s.mu.Unlock()
	s.conn.socket.hold()
	confirmation, err := s.raw.PublishWithDeferredConfirm(p.Exchange, p.RoutingKey, true, false, p.Message.publishing())
	if err == nil {
		p.confirmation = confirmation
		return nil
	}
	s.mu.Lock()
	delete(s.inFlight, p.tag)
	p.returned = nil // that was an equal message
	s.mu.Unlock()
	s.Flush()
	if errors.Is(err, amqp.ErrClosed) {
		return ErrNotWritten // at least its last frame
	}
	// A frame may have been written in part. Nothing that follows on this connection can be
	// understood.
	s.conn.End(0)
	return translated(err)
}

// Flush writes what is held. It must be called before the publisher waits for anything.
func (s *Confirming) Flush() { s.conn.socket.flush() }

// Answered is closed when the broker has answered, or the channel is gone. It is valid after
// Publish has succeeded.
func (p *Publication) Answered() <-chan struct{} { return p.confirmation.Done() }

// Result returns nil for a publication that is confirmed, else a *Return, ErrNacked or the
// error of Err. It must be called once for each publication, after Answered was closed.
func (s *Confirming) Result(p *Publication) error {
	acked := p.confirmation.Acked()
	gone := !acked && s.raw.IsClosed() // asked afterwards
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
	case gone:
		return s.Err()
	}
	return ErrNacked
}

// takeReturns applies the returns that have come. A return is delivered before the confirm
// of its message, by the same goroutine: if there is one, it is here already.
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

// IsClosed reports whether the channel is closed. Ended may follow a moment later.
func (s *Confirming) IsClosed() bool { return s.raw.IsClosed() }

// Ended is closed when the channel is gone.
func (s *Confirming) Ended() <-chan struct{} { return s.ended }

// Err waits until the channel is gone, and returns the reason.
func (s *Confirming) Err() error {
	<-s.ended
	return s.err
}

// Close closes the channel, and waits for the broker's answer.
func (s *Confirming) Close() { s.conn.closeRaw(s.raw) }

// Extra is a semaphore for the channels that a connection has beside those that everything
// needs: to send reserves one, to receive releases it.
func (c *Conn) Extra() chan struct{} { return c.extra }

// maxExtraChannels bounds the channels of a connection that are extra. A connection has a
// limit, 2047 with RabbitMQ's defaults, and a channel beyond it fails for everybody. Half of
// them are for what publish.maxBulkheads bounds.
const maxExtraChannels = 128
