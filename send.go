package reprise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Publish publishes m and returns when the broker has taken responsibility for
// it: persistent, routed to at least one queue, confirmed. An empty m.MessageID
// is set to a random one first, so that publishing the same m again after an
// error makes a recognisable duplicate. If m.Timestamp is zero, the message is sent with
// the current time, unless m.NoTimestamp is set; m keeps its zero.
//
// Nil means that the message is stored. Two errors leave it open:
//
//	ErrUnconfirmed     it was sent, and there was no answer: the connection was lost,
//	                   the ConfirmTimeout passed, ctx ended
//	ErrNacked          a queue has refused it (it is full); others may have taken it
//
// With all others it is not stored:
//
//	*UnroutableError   no queue, or no exchange, of that name
//	*RefusedError      the user may not publish that, or not there
//	*TooLargeError     larger than the broker takes
//	ErrInvalidMessage  it cannot be encoded
//	ErrBlocked         *BlockedError: not sent within the ConfirmTimeout, the broker
//	                   having stopped reading, by a memory or disk alarm
//	ErrStalled         not sent within the ConfirmTimeout, since messages before it
//	                   are not confirmed
//	ErrDisconnected    not sent within the ConfirmTimeout, for lack of a connection
//	ErrClosed          the Client was closed
//	the cause of ctx's end, when nothing was sent
//
// While the connection is down or blocked Publish waits, up to the
// ConfirmTimeout.
//
// A queue that does not confirm, such as a quorum queue without a majority, does not
// hold up what is published elsewhere: when there is no answer for a third of the
// ConfirmTimeout, or 10 s, messages to that exchange with that routing key take a channel of
// their own, few at a time, until they are confirmed again. (Those that go there
// now may be stored before those that went before.) There are at most 128 such channels,
// or half of the connection's channel_max if that is less; where more queues than
// that do not confirm at once, publishing waits (ErrStalled) until one does.
//
// m belongs to the call until it returns: Publish writes its MessageID, so not even
// another Publish of the same m may run meanwhile. After ErrUnconfirmed its
// Body must not be changed at all, since it may still be on its way.
func (c *Client) Publish(ctx context.Context, m *Message) error {
	pub, err := c.attempt(ctx, m, amqpconn.RoomForDeaths, nil)
	c.published(m, pub, err)
	return err
}

// attempt is Publish that tells no observer, with room in the header frame for what
// brokers add. w is nil if m is to arrive at once.
func (c *Client) attempt(ctx context.Context, m *Message, reserve int, w *wait) (*publication, error) {
	timer := time.NewTimer(c.cfg.ConfirmTimeout)
	defer timer.Stop()
	pub, err := c.prepare(ctx, m, reserve, timer.C)
	if err != nil {
		return pub, err
	}
	pub.wait = w
	if err := c.messages.send(ctx, pub, timer.C); err != nil {
		return pub, err
	}
	return pub, c.messages.await(ctx, pub, timer.C, nil)
}

// prepare makes of m what is to be published. It waits for a connection, whose
// frames it must fit.
func (c *Client) prepare(ctx context.Context, m *Message, reserve int, expired <-chan time.Time) (*publication, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: it is nil", ErrInvalidMessage)
	}
	if m.MessageID == "" {
		m.MessageID = rand.Text()
	}
	for _, name := range []string{headerCC, headerBCC} {
		if v, ok := m.Headers[name]; ok {
			if _, ok := v.([]any); !ok {
				return nil, fmt.Errorf("%w: header %s is a %T: write []any{\"key\", …}, further routing keys", ErrInvalidMessage, name, v)
			}
		}
	}
	msg, err := m.encode()
	if err != nil {
		return nil, err
	}
	if msg.Timestamp.IsZero() && !m.NoTimestamp {
		msg.Timestamp = time.Now()
	}
	conn, err := c.publishing.Within(ctx, expired)
	switch {
	case errors.Is(err, amqpconn.ErrExpired):
		return nil, c.messages.unsent()
	case errors.Is(err, ErrClosed):
		return nil, err
	case err != nil:
		return nil, notSent(ctx)
	}
	if err := amqpconn.CheckSize(m.Exchange, m.RoutingKey, &msg, conn.FrameSize(), reserve); err != nil {
		return nil, err
	}
	pub := newPublication(m.Exchange, m.RoutingKey, msg)
	if c.cfg.Observer != nil {
		pub.began = time.Now()
	}
	return pub, nil
}

// published tells the observer, if there is one. pub is nil if m never came as far.
func (c *Client) published(m *Message, pub *publication, err error) {
	if c.cfg.Observer == nil || m == nil {
		return
	}
	e := Event{Kind: EventPublished, MessageID: m.MessageID, Err: err}
	if pub != nil {
		e.Took = time.Since(pub.began)
		select {
		case <-pub.done:
			e.Took = pub.took
		default:
		}
	}
	c.cfg.Observer.Observe(e)
}
