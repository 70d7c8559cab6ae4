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

// lane is a queue of messages for consecutive channels.
type lane struct {
	publisher *Publisher
	kind      laneKind
	window    int           // maximum number of messages in flight
	requests  chan *Message // from callers

	mu    sync.Mutex
	moved []*Message    // from other lanes; the other lanes must not wait for this lane
	more  chan struct{} // receives a token when a message is moved

	// These fields belong to a bulkhead. Publisher.mu guards them.
	destinations int  // number of late destinations that use the bulkhead
	stuck        bool // the oldest message is late
}

func (p *Publisher) newLane(kind laneKind, window int) *lane {
	return &lane{publisher: p, kind: kind, window: window, requests: make(chan *Message, maxQueued), more: make(chan struct{}, 1)}
}

// next returns the next message to write, or nil if no message is pending. Moved messages come first,
// because they have waited longer than the requests of callers.
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

// move passes a message from another lane to this lane, because the destination of the message has become late, or because
// the properties of the message are now proven. The number of moved messages is at most the number of messages that waited
// in the other lane.
func (l *lane) move(m *Message) {
	l.mu.Lock()
	l.moved = append(l.moved, m)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// run serves requests until the publisher's ctx is done. The fast lane always has a channel. Other lanes open a channel
// only while they need it, because extra channels are limited.
func (l *lane) run() {
	p := l.publisher
	ctx := p.ctx
	retrier := retry.Retrier{Schedule: p.cfg.Reconnect}
	var next *Message // taken, but not written yet
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
			<-s.finished
			err = s.confirms.Err()
			if _, refused := amqpconn.RefusedChannel(err); refused {
				s.warn("channel closed", "error", err)
				continue // without a delay, because the broker only refused a message
			}
		}
		if conn.Closing() {
			<-conn.Lost() // the link logs the loss, and waits before it reconnects
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

// open opens a channel. Except for the fast lane, it first waits for a free extra channel.
func (l *lane) open(conn *amqpconn.Conn) (*channel, error) {
	p := l.publisher
	select {
	case <-conn.Writable(): // the broker does not answer on a blocked connection
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
		s.releaseWhenFinished()
	}
	return s, p.cfg.Tasks.Go(s.listen)
}

// keep lets a retired channel stay open for pending answers. The number of such channels is limited. At the limit, keep
// blocks all publishing until an extra channel is free or the retired channel has finished.
func (l *lane) keep(s *channel) {
	if l.kind != fastLane {
		return // already an extra channel
	}
	select {
	case s.conn.Extra() <- struct{}{}:
		s.releaseWhenFinished()
	case <-s.finished:
	case <-l.publisher.ctx.Done():
	}
}

func (s *channel) releaseWhenFinished() {
	_ = s.lane.publisher.cfg.Tasks.Go(func() { // after Close, no lane needs the extra channel
		<-s.finished
		<-s.conn.Extra()
	})
}

// result converts the broker's answer, or the error of the closed channel, to the result of a message.
func result(m *Message, err error) error {
	if r, ok := errors.AsType[*amqpconn.Return](err); ok {
		return &UnroutableError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Code: r.Code, Text: r.Text}
	}
	if err == nil || errors.Is(err, amqpconn.ErrNacked) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
}
