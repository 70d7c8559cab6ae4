package amqpconn

import (
	"bytes"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	// ErrNacked means that the broker refused a message.
	ErrNacked = errors.New("reprise: the broker refused the message (nack)")

	// ErrNotWritten means that a publication was not written, so the broker will never receive it.
	ErrNotWritten = errors.New("not written")
)

// errChannelClosed means that the channel of a publication has closed before the broker has answered.
var errChannelClosed = errors.New("channel closed")

// Confirming is a channel in confirm mode.
//
// The broker returns an unroutable message, and then confirms it. A return does not carry a delivery tag, so it counts
// for every publication in flight with the same exchange, key, message id and body. At worst, this causes a needless
// republication, which creates a duplicate with the same id. A wrong confirm would lose a message.
type Confirming struct {
	conn      *Conn
	raw       channel
	publisher publisher

	ended chan struct{} // closed when the channel has closed
	err   error         // the reason; valid after ended is closed
}

// Publication is a message to publish. The caller must not change Exchange, RoutingKey or Message while the message is
// in flight.
type Publication struct {
	Exchange, RoutingKey string
	Message              *Message

	tag      uint64
	answered <-chan struct{}
	returned *Return

	confirmation *amqp.DeferredConfirmation // only of amqp091-go

	// Only of the native client:
	done   chan struct{} // answered, to be closed
	answer answer
}

// Return is the result of a publication that the broker could not route.
type Return struct {
	Code int    // AMQP reply code
	Text string // the reason from the broker
}

func (r *Return) Error() string { return fmt.Sprintf("returned: %d %s", r.Code, r.Text) }

// inFlight are the publications without a result, by tag.
type inFlight map[uint64]*Publication

// returned marks the publications to which a return may belong; see Confirming.
func (f inFlight) returned(r *Return, exchange, key, id string, body []byte) {
	for _, p := range f {
		if p.Exchange == exchange && p.RoutingKey == key && p.Message.MessageID == id && bytes.Equal(p.Message.Body, body) {
			p.returned = r
		}
	}
}

// OpenConfirming opens a channel in confirm mode. The parameter window is the maximum number of publications in flight.
func (c *Conn) OpenConfirming(window int) (*Confirming, error) {
	raw, err := c.openRaw()
	if err != nil {
		return nil, err
	}
	s := &Confirming{conn: c, raw: raw, ended: make(chan struct{})}
	err = c.askConnection(func() (err error) {
		s.publisher, err = raw.confirm(window)
		return err
	})
	if err != nil {
		c.closeRaw(raw)
		return nil, translated(err)
	}
	err = c.tasks.Go(func() {
		<-raw.ended()
		s.err = raw.err()
		close(s.ended)
	})
	return s, err
}

// Publish writes a mandatory, persistent message. The connection may buffer the write until Flush. After ErrNotWritten the
// caller may republish the message. After ErrInvalidMessage, nothing was written. After any other error the broker may have
// received the message, and the connection closes. Publish is not safe for concurrent use.
func (s *Confirming) Publish(p *Publication) error {
	err := s.publisher.publish(p)
	if err == nil {
		return nil
	}
	s.Flush()
	if errors.Is(err, ErrNotWritten) || errors.Is(err, ErrInvalidMessage) {
		return err
	}
	// The client may have written only part of a frame, and the broker could then not parse further frames.
	s.conn.End(0)
	return translated(err)
}

// Flush writes the buffered data. The publisher must call it before it waits.
func (s *Confirming) Flush() { s.conn.raw.flush() }

// Answered returns a channel that is closed when the broker has answered, or the AMQP channel has closed. Answered must
// only be called after Publish has succeeded.
func (p *Publication) Answered() <-chan struct{} { return p.answered }

// Result returns nil for a confirmed publication, or else a *Return, ErrNacked or the error of Err. The caller must
// call it once for each publication, after Answered is closed.
func (s *Confirming) Result(p *Publication) error {
	err := s.publisher.result(p)
	if err == errChannelClosed {
		return s.Err()
	}
	return err
}

// IsClosed reports whether the channel is closed. Ended may close a moment later.
func (s *Confirming) IsClosed() bool { return s.raw.isClosed() }

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
