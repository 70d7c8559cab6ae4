package reprise

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxUnanswered bounds the requests of a connection that the broker has not answered in time. Each of them keeps its channel
// open, since the AMQP client cannot give a request up, and a connection has a limit of channels, 2047 with RabbitMQ's
// defaults. At the bound the connection is replaced, while others still get a channel. It is not replaced sooner, since that
// costs every message that was delivered on it one of the deliveries it is allowed.
const maxUnanswered = 128

// ask makes a request on a channel of the connection. It returns when the broker has answered, or the connection has ended.
func (c *conn) ask(request func() error) error {
	patience := c.patience(c.timeout)
	most := min(maxUnanswered, max(1, int32(c.Config.ChannelMax)/4))
	late := time.AfterFunc(patience, func() {
		if c.unanswered.Add(1) >= most && c.blocking() == nil { // else it is nobody's fault
			c.giveUp(patience)
		}
	})
	defer func() {
		if !late.Stop() {
			c.unanswered.Add(-1)
		}
	}()
	return request()
}

// insist is ask for a request that no queue can keep the broker from answering. If there is no answer, the broker does not
// read: then only another connection helps, and this one ends.
func (c *conn) insist(request func() error) error {
	patience := c.patience(c.timeout)
	silent := make(chan struct{})
	late := time.AfterFunc(patience, func() {
		if c.blocking() == nil {
			close(silent)
			c.giveUp(patience)
		}
	})
	defer late.Stop()
	err := request()
	select {
	case <-silent:
		if err != nil {
			err = errSilent
		}
	default:
	}
	return err
}

// open opens a channel.
func (c *conn) open() (ch *amqp.Channel, err error) {
	err = c.insist(func() error {
		ch, err = c.Channel()
		return err
	})
	return ch, err
}

// closeChannel closes a channel. It is closed, whatever the error.
func (c *conn) closeChannel(ch *amqp.Channel) { _ = c.ask(ch.Close) }

// unblocked waits while the broker has blocked the connection, until ctx ends: a request would get no answer, and keep its
// channel.
func (c *conn) unblocked(ctx context.Context) error {
	select {
	case <-c.mayWrite():
		return nil
	case <-c.lost:
		return c.reason
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// onChannel makes a request on a channel that is opened for it, and closed after it.
func onChannel[T any](ctx context.Context, c *Client, conn *conn, request func(ch *amqp.Channel) (T, error)) (T, error) {
	var none T
	if err := conn.unblocked(ctx); err != nil {
		return none, err
	}
	return call(ctx, c, func() (answer T, err error) {
		ch, err := conn.open()
		if err != nil {
			return none, err
		}
		defer conn.closeChannel(ch)
		err = conn.ask(func() error {
			answer, err = request(ch)
			return err
		})
		return answer, err
	}, nil)
}
