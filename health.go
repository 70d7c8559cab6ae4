package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Healthy returns nil if both connections are open, the broker has not blocked publishing, and it answers on both
// connections before ctx is done. The deadline of ctx should be a few seconds away. If one of these conditions is not met,
// Healthy returns
//
//	ErrDisconnected  with the reason: the last connection error, or no answer
//	ErrBlocked       *BlockedError: a memory or disk alarm of the broker
//	ErrStalled       a confirm is late, and no other confirm has arrived since the message was sent
//	ErrClosed        the Client was closed
//	the cause of the cancellation, if ctx was canceled
//
// Use it for a readiness probe, because a program that cannot reach its broker, or cannot publish, should not receive
// requests. Do not use it for a liveness probe, because a restart of the program does not restore the broker, and the
// Client reconnects automatically.
func (c *Client) Healthy(ctx context.Context) error {
	publishing, err := c.publishing.Current()
	if err != nil {
		return err
	}
	if err := publishing.Blocked(); err != nil {
		return err
	}
	consuming, err := c.consuming.Current()
	if err != nil {
		return err
	}
	answers := make(chan error, 2)
	for _, conn := range []*amqpconn.Conn{publishing, consuming} {
		if err := c.tasks.Go(func() { answers <- c.ping(ctx, conn) }); err != nil {
			return err
		}
	}
	if err := cmp.Or(<-answers, <-answers); err != nil {
		return err
	}
	if c.messages.Silent() || c.copies.Silent() {
		return fmt.Errorf("%w: latest message is not confirmed", ErrStalled)
	}
	return nil
}

// ping sends a request on a connection and waits for the answer.
func (c *Client) ping(ctx context.Context, conn *amqpconn.Conn) error {
	err := conn.Ping(ctx)
	switch _, closed := c.consuming.Current(); {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed), errors.Is(closed, ErrClosed):
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled): // a cancellation, unlike a deadline, is not the broker's fault
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: broker at %s does not answer: %w", ErrDisconnected, conn.Addr(), err)
}
