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

// Publish publishes m as a persistent message. It returns nil after the broker has routed the message to at least one
// queue and confirmed it. If m.MessageID is empty, Publish first sets it to a random ID. If you publish the same m
// again after an error, a consumer can therefore recognize the duplicate. If m.Timestamp is zero and m.NoTimestamp is
// not set, Publish sends the current time, without changing m.
//
// A nil error means that the broker has stored the message. Two errors mean that the broker may have stored it:
//
//	ErrUnconfirmed     it was sent, but not confirmed: the connection was lost,
//	                   the ConfirmTimeout passed, or ctx was done
//	ErrNacked          a queue, usually a full one, refused it; other queues may have stored it
//
// Any other error means that the broker has not stored it:
//
//	ErrUnroutable      *UnroutableError: no queue matches, or the exchange does not exist
//	*RefusedError      the user may not publish this message, or not to this exchange
//	*TooLargeError     the body exceeds the limit of the broker
//	ErrInvalidMessage  it cannot be encoded, its ReplyTo is amq.rabbitmq.reply-to,
//	                   or Config.BeforePublish returned this error
//	ErrBlocked         *BlockedError: not sent within the ConfirmTimeout, because the broker
//	                   has stopped reading, after a memory or disk alarm
//	ErrStalled         not sent within the ConfirmTimeout, because earlier messages
//	                   are not confirmed
//	ErrDisconnected    not sent within the ConfirmTimeout, because there is no connection
//	ErrClosed          the Client was closed
//	the cause of ctx's cancellation, if ctx was done before the message was sent
//	other errors of Config.BeforePublish
//
// If the connection is lost or blocked, Publish waits for at most the ConfirmTimeout.
//
// A queue that does not confirm, such as a quorum queue without a majority, does not block messages to other
// destinations. If a message is not confirmed within a third of the ConfirmTimeout (at most 10 s), later messages to
// the same exchange with the same routing key use another channel. The client sends few messages at a time on that
// channel, until the broker confirms messages to the destination again. The broker may store these messages before
// messages that were sent earlier. If more than 32 such destinations do not confirm at the same time, some of them
// share channels and wait for each other. A connection has at most 128 additional channels, or half of its channel_max if
// that is less. If none is available, publishing waits (ErrStalled) until a message is confirmed.
//
// Publish uses a separate channel for a message that the broker may refuse, because a refusal closes the channel. On each
// connection, such messages are the first to each exchange other than the default exchange, the first with each UserID
// other than the connection's user, and each message over 64 KiB that is larger than all earlier messages. After a
// refusal, Publish also uses separate channels for the messages that were in flight on the closed channel. The broker may
// store a message on a separate channel after messages that other goroutines send later.
//
// The caller must not use m until Publish returns. Publish sets the MessageID, so concurrent calls with the same m are not
// allowed. After ErrUnconfirmed, the caller must never change the Body, because the client may still be sending it.
func (c *Client) Publish(ctx context.Context, m *Message) error {
	if err := c.before(ctx, m); err != nil {
		c.published(m, nil, err)
		return err
	}
	return c.publishNow(ctx, m)
}

// publishNow publishes without calling Config.BeforePublish.
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
	if err != nil && !errors.Is(err, ErrInvalidMessage) {
		return fmt.Errorf("reprise: not sent: %w", err)
	}
	return err
}

// publish publishes without calling the observer. The parameter reserve is the number of bytes that remain free in the
// header frame, for headers that brokers add. w is nil if m is not delayed.
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

// directReplyTo is the pseudo-queue from which a channel consumes the replies to its own requests. If another channel
// publishes a message with this ReplyTo, the broker closes that channel.
const directReplyTo = "amq.rabbitmq.reply-to"

// prepare encodes m. It waits for a connection, because the message must fit into the frames of the connection.
func (c *Client) prepare(ctx context.Context, m *Message, reserve int, expired <-chan time.Time) (*publish.Message, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: message must not be nil", ErrInvalidMessage)
	}
	if m.MessageID == "" {
		m.MessageID = rand.Text()
	}
	for _, name := range []string{headerCC, headerBCC} {
		if v, ok := m.Headers[name]; ok {
			if _, ok := v.([]any); !ok {
				return nil, fmt.Errorf("%w: header %s must be an array of routing keys: got %T (example: []any{\"key\"})", ErrInvalidMessage, name, v)
			}
		}
	}
	if m.ReplyTo == directReplyTo {
		return nil, fmt.Errorf("%w: ReplyTo must not be %q (only the channel that consumes the replies can use it; use the name of a queue)", ErrInvalidMessage, directReplyTo)
	}
	content, err := m.content()
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

// published calls the observer, if there is one. pub is nil if m failed before it was encoded.
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
