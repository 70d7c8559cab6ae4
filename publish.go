package reprise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/publish"
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
//	ErrUnroutable      *UnroutableError: no queue, or no exchange, of that name
//	*RefusedError      the user may not publish that, or not there
//	*TooLargeError     larger than the broker takes
//	ErrInvalidMessage  it cannot be encoded, or its ReplyTo is amq.rabbitmq.reply-to
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
// ConfirmTimeout, or 10 s, messages to that exchange with that routing key take another
// channel, few at a time, until they are confirmed again. (They may be stored before
// messages that were sent earlier.) If more than 64 such destinations do not confirm at
// once, they share channels and wait for each other. There are at most 128 such channels,
// or half of the connection's channel_max if that is less; if none is left, publishing waits
// (ErrStalled) until a message is confirmed.
//
// The first message to an exchange, with a UserID or of a size goes over a channel of its own
// until the broker has answered, since the broker closes the channel of a message that it
// refuses. After a refusal, the same applies to what was in flight on that channel. Messages
// that other goroutines send later may be stored before it.
//
// m belongs to the call until it returns: Publish writes its MessageID, so not even
// another Publish of the same m may run meanwhile. After ErrUnconfirmed its
// Body must not be changed at all, since it may still be on its way.
func (c *Client) Publish(ctx context.Context, m *Message) error {
	if err := c.before(ctx, m); err != nil {
		c.published(m, nil, err)
		return err
	}
	return c.publishNow(ctx, m)
}

// publishNow is Publish without Config.BeforePublish.
func (c *Client) publishNow(ctx context.Context, m *Message) error {
	pub, err := c.publish(ctx, m, amqpconn.RoomForDeaths, nil)
	c.published(m, pub, err)
	return err
}

// before calls Config.BeforePublish.
func (c *Client) before(ctx context.Context, m *Message) error {
	if m == nil || c.cfg.BeforePublish == nil {
		return nil // prepare refuses nil
	}
	err := guard.Call("function BeforePublish", func() error { return c.cfg.BeforePublish(ctx, m) })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	return nil
}

// publish is Publish that does not tell the observer, with room in the header frame for what
// brokers add. w is nil if m is to arrive at once.
func (c *Client) publish(ctx context.Context, m *Message, reserve int, w *wait) (*publish.Message, error) {
	timer := c.messages.Timer()
	defer c.messages.Release(timer)
	pub, err := c.prepare(ctx, m, reserve, timer.C)
	if err != nil {
		return pub, err
	}
	if w != nil {
		pub.Reroute = w.shorten
	}
	if err := c.messages.Send(ctx, pub, timer.C); err != nil {
		return pub, err
	}
	return pub, c.messages.Await(ctx, pub, timer.C, nil)
}

// directReplyTo stands for the replies that a channel consumes. The broker closes any other
// channel on which it is published.
const directReplyTo = "amq.rabbitmq.reply-to"

// prepare encodes m. It waits for a connection, whose frames m must fit.
func (c *Client) prepare(ctx context.Context, m *Message, reserve int, expired <-chan time.Time) (*publish.Message, error) {
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
	if m.ReplyTo == directReplyTo {
		return nil, fmt.Errorf("%w: ReplyTo %q is for the channel that consumes the replies: name a queue of your own", ErrInvalidMessage, directReplyTo)
	}
	content, err := m.encode()
	if err != nil {
		return nil, err
	}
	if content.Timestamp.IsZero() && !m.NoTimestamp {
		content.Timestamp = time.Now()
	}
	conn, err := c.publishing.Within(ctx, expired)
	switch {
	case errors.Is(err, amqpconn.ErrExpired):
		return nil, c.messages.Unsent()
	case errors.Is(err, ErrClosed):
		return nil, err
	case err != nil:
		return nil, publish.NotSent(ctx)
	}
	if err := amqpconn.CheckSize(m.Exchange, m.RoutingKey, &content, conn.FrameSize(), reserve); err != nil {
		return nil, err
	}
	pub := publish.NewMessage(m.Exchange, m.RoutingKey, &content)
	if c.cfg.Observer != nil {
		pub.Began = time.Now()
	}
	return pub, nil
}

// published tells the observer, if there is one. pub is nil if m never came as far.
func (c *Client) published(m *Message, pub *publish.Message, err error) {
	if c.cfg.Observer == nil || m == nil {
		return
	}
	e := Event{Kind: EventPublished, MessageID: m.MessageID, Err: err}
	if pub != nil {
		e.Took = pub.Took()
	}
	c.cfg.Observer.Observe(e)
}
