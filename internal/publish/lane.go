package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

type laneKind int

const (
	fastLane     laneKind = iota
	bulkheadLane          // for late destinations
	probeLane             // for unproven messages
)

// lane is a queue of messages that are written on one channel after the other.
type lane struct {
	publisher *Publisher
	kind      laneKind
	window    int // messages in flight
	requests  chan *Message

	destinations int // late ones that have this bulkhead; guarded by Publisher.mu
}

func (p *Publisher) newLane(kind laneKind, window int) *lane {
	return &lane{publisher: p, kind: kind, window: window, requests: make(chan *Message, maxQueued)}
}

// run serves requests until the publisher's ctx ends. The fast lane always has a channel;
// the others have one while they need it, since these are few.
func (l *lane) run() {
	p := l.publisher
	ctx := p.ctx
	retrier := retry.Retrier{Schedule: p.cfg.Reconnect}
	var next *Message // taken, and not written yet
	defer func() {
		if next != nil {
			next.refuse(amqpconn.ErrClosed)
		}
	}()
	var generation uint64
	for {
		if l.kind != fastLane && next == nil {
			select {
			case next = <-l.requests:
			case <-ctx.Done():
				return
			}
		}
		conn, err := p.cfg.Link.Get(ctx)
		if err != nil {
			return
		}
		if l.kind == fastLane && conn.Generation() != generation {
			generation = conn.Generation()
			p.proven.forget(p.cfg.Link.User())
		}
		began := time.Now()
		s, err := l.open(conn)
		if err == nil {
			next = s.serve(ctx, next)
			switch {
			case ctx.Err() != nil:
				return
			case s.isRetired():
				l.keep(s)
				continue
			}
			<-s.dead
			if s.confirmed.Load() || s.blamed {
				retrier.Reset()
			}
			err = s.confirms.Err()
		}
		if conn.Closing() {
			<-conn.Lost() // the link logs it, and waits before it connects again
			continue
		}
		if ctx.Err() != nil {
			return
		}
		delay := retrier.Failed(time.Since(began))
		conn.Logger().Warn("channel closed", "error", err, retry.Next(delay))
		if retry.Sleep(ctx, delay) != nil {
			return
		}
	}
}

// open opens a channel. Except for the fast lane, it waits until there may be one more.
func (l *lane) open(conn *amqpconn.Conn) (*channel, error) {
	p := l.publisher
	if l.kind != fastLane {
		select {
		case conn.Extra() <- struct{}{}:
		case <-conn.Lost():
			return nil, conn.Reason()
		case <-p.ctx.Done():
			return nil, p.ctx.Err()
		}
	}
	confirms, err := conn.OpenConfirming(l.window)
	if err != nil {
		if l.kind != fastLane {
			<-conn.Extra()
		}
		return nil, err
	}
	s := newChannel(l, conn, confirms)
	if l.kind != fastLane {
		s.releaseWhenDead()
	}
	return s, p.cfg.Tasks.Go(s.listen)
}

// keep keeps a retired channel for the answers that may still come. There is a limit for
// such channels. At the limit it waits, and so does all that is published, until there may
// be one more, or this one has ended.
func (l *lane) keep(s *channel) {
	if l.kind != fastLane {
		return // it is an extra channel already
	}
	select {
	case s.conn.Extra() <- struct{}{}:
		s.releaseWhenDead()
	case <-s.dead:
	case <-l.publisher.ctx.Done():
	}
}

func (s *channel) releaseWhenDead() {
	_ = s.lane.publisher.cfg.Tasks.Go(func() { // a closed client has no use for it
		<-s.dead
		<-s.conn.Extra()
	})
}

// forward sends a message on by another lane, since its destination has become late, or what
// it needed is proven, while it waited.
func (l *lane) forward(m *Message, to *lane) {
	select {
	case to.requests <- m:
		return
	default:
	}
	if to.kind == bulkheadLane {
		m.refuse(fmt.Errorf("%w: too many messages wait for that already", ErrStalled))
		return
	}
	select {
	case to.requests <- m:
	case <-l.publisher.ctx.Done():
		m.refuse(amqpconn.ErrClosed)
	}
}

// result returns what the broker's answer, or the end of the channel, means for a message.
func result(m *Message, err error) error {
	if r, ok := errors.AsType[*amqpconn.Return](err); ok {
		return &UnroutableError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Code: r.Code, Text: r.Text}
	}
	if err == nil || errors.Is(err, amqpconn.ErrNacked) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
}
