package publish

import (
	"errors"
	"fmt"
	"sync"
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
	window    int           // messages in flight
	requests  chan *Message // from callers

	mu    sync.Mutex
	moved []*Message    // from other lanes, which must not wait for this one
	more  chan struct{} // gets a token when a message was moved

	// Of a bulkhead, guarded by Publisher.mu.
	destinations int  // late ones that have it
	stuck        bool // its oldest message is late
}

func (p *Publisher) newLane(kind laneKind, window int) *lane {
	return &lane{publisher: p, kind: kind, window: window, requests: make(chan *Message, maxQueued), more: make(chan struct{}, 1)}
}

// next returns the next message to write, or nil if there is none now. Those that were moved
// have waited longer than those of callers.
func (l *lane) next() *Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.moved) > 0 {
		m := l.moved[0]
		l.moved[0] = nil
		l.moved = l.moved[1:]
		return m
	}
	l.moved = nil
	select {
	case m := <-l.requests:
		return m
	default:
		return nil
	}
}

// move gives a message to a lane: since it was handed over, its destination has become late,
// or what it needs is proven. There are as many at most as have waited in the other lane.
func (l *lane) move(m *Message) {
	l.mu.Lock()
	l.moved = append(l.moved, m)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
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
			if next = l.next(); next == nil {
				select {
				case next = <-l.requests:
				case <-l.more:
				case <-ctx.Done():
					return
				}
				continue
			}
		}
		conn, err := p.cfg.Link.Get(ctx)
		if err != nil {
			return
		}
		if l.kind == fastLane && conn.Generation() != generation {
			generation = conn.Generation()
			p.proven.forget(p.cfg.Link.User())
			p.silent.Store(false)
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
			err = s.confirms.Err()
			if _, refused := amqpconn.RefusedChannel(err); refused {
				s.warn("channel closed", "error", err)
				continue // at once: a message was the reason
			}
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
	select {
	case <-conn.Writable(): // a blocked broker does not answer
	case <-conn.Lost():
		return nil, conn.Reason()
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
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
