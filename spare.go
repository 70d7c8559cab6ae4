package reprise

import (
	"context"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// maxSpare bounds how many channels a connection may have, besides those that serve
// everybody, for destinations that do not confirm: those of detours, and those that
// are set aside. A connection has a limit, 2047 with RabbitMQ's defaults, and what is
// over it fails for all.
const maxSpare = 128

// open opens a channel to publish on. That of a detour waits until there may be one
// more.
func (p *publisher) open(ctx context.Context, c *amqpconn.Conn) (*confirming, error) {
	if p.onDetour {
		if err := takeSpare(ctx, c); err != nil {
			return nil, err
		}
	}
	s, err := openConfirming(c, p)
	switch {
	case p.onDetour && err != nil:
		<-c.Spare
	case p.onDetour:
		p.freeSpare(s)
	}
	return s, err
}

// setAside keeps a channel, for the answers that may still come. While there may be no
// more such channels it waits, and so does all that is published, until there may be, or
// nothing is left to wait for on this one: it ends. That of a detour is set aside when no
// answer is to be expected any more.
func (p *publisher) setAside(ctx context.Context, s *confirming) {
	spare := s.conn.Spare
	if p.onDetour {
		spare = nil // it has been taken
	}
	select {
	case spare <- struct{}{}:
		p.freeSpare(s)
		return
	default:
	}
	s.leave()
	select {
	case spare <- struct{}{}:
		p.freeSpare(s)
	case <-s.dead:
	case <-ctx.Done():
	}
}

func takeSpare(ctx context.Context, c *amqpconn.Conn) error {
	select {
	case c.Spare <- struct{}{}:
		return nil
	case <-c.Lost():
		return c.Reason()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// freeSpare has one channel more be possible once this one has ended.
func (p *publisher) freeSpare(s *confirming) {
	p.client.tasks.WaitGroup().Go(func() {
		<-s.dead
		<-s.conn.Spare
	})
}
