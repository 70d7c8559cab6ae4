package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Healthy returns nil if both connections stand, the broker has not blocked
// publishing, and it answers on both connections before ctx ends: give ctx a
// deadline of a few seconds. Otherwise it returns
//
//	ErrDisconnected  with the reason: the last error of connecting, or no answer
//	ErrBlocked       *BlockedError: a memory or disk alarm of the broker
//	ErrStalled       a queue does not confirm, and nothing else was confirmed since
//	ErrClosed        the Client was closed
//	the cause of ctx's cancellation: nobody waits for the answer any more
//
// It suits a readiness probe: a program that cannot reach its broker, or may not
// publish, should get no requests. It does not suit a liveness probe: restarting
// the program does not bring back the broker, and the Client reconnects by itself.
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
		return fmt.Errorf("%w: what was published last has no answer", ErrStalled)
	}
	return nil
}

// ping makes the broker answer.
func (c *Client) ping(ctx context.Context, conn *amqpconn.Conn) error {
	err := conn.Ping(ctx)
	switch _, closed := c.consuming.Current(); {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed), errors.Is(closed, ErrClosed):
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled): // which says nothing about the broker, as a deadline does
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s does not answer: %w", ErrDisconnected, conn.Addr(), err)
}
