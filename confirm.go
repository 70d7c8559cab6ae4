package reprise

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// confirming is one channel in confirm mode, and what is in flight on it.
//
// The broker answers each message with a confirm, by number, preceded by a
// return if the message could not be routed (it confirms those too). A return
// carries no number, so it condemns every message in flight that equals it in
// exchange, key, message id and body: to publish once too often is a duplicate
// with the same id, to believe a confirm once too often is a loss.
type confirming struct {
	conn    *conn
	ch      *amqp.Channel
	returns chan amqp.Return
	answers chan amqp.Confirmation
	closes  chan *amqp.Error

	mu       sync.Mutex // never held across a call into the AMQP client
	inFlight map[uint64]*publication
	room     chan struct{} // a token for each publication in flight

	confirmed atomic.Bool   // the broker has taken at least one message
	dead      chan struct{} // closed when the channel is gone and everything in flight resolved
	reason    error         // why; valid once dead is closed
}

// maxInFlight bounds what is published and not answered. The AMQP client drops
// a notification that finds its channel full for 5 s, and a return that is
// dropped makes a loss. There is at most one return and one answer for each
// publication, so channels of this size are never full, however long this
// process is stopped.
const maxInFlight = 1024

func openConfirming(c *conn) (*confirming, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, err
	}
	s := &confirming{
		conn: c, ch: ch, dead: make(chan struct{}),
		inFlight: map[uint64]*publication{},
		room:     make(chan struct{}, maxInFlight),
		// Order between the two is restored by listen.
		returns: ch.NotifyReturn(make(chan amqp.Return, maxInFlight)),
		answers: ch.NotifyPublish(make(chan amqp.Confirmation, maxInFlight)),
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := ch.Confirm(false); err != nil {
		_ = ch.Close()
		return nil, err
	}
	return s, nil
}

// listen takes returns and confirms until the channel is gone. It never waits
// for anything else: the client's only reader goroutine waits for it.
func (s *confirming) listen() {
	defer close(s.dead)
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				s.returns = nil
				continue
			}
			s.condemn(r)
		case a, ok := <-s.answers:
			if !ok {
				s.fail()
				return
			}
			// A return is sent before the confirm of its message, by the same
			// goroutine: if there is one for this confirm, it is here already.
			s.condemnAll()
			s.answer(a)
		}
	}
}

func (s *confirming) condemnAll() {
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				s.returns = nil
				return
			}
			s.condemn(r)
		default:
			return
		}
	}
}

func (s *confirming) register(tag uint64, pub *publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[tag] = pub
}

// forget reports whether the tag was still in flight; the caller then resolves
// the publication.
func (s *confirming) forget(tag uint64) bool {
	_, found := s.take(tag)
	return found
}

// take removes a publication from those in flight, which makes room for another.
func (s *confirming) take(tag uint64) (*publication, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pub, found := s.inFlight[tag]
	if found {
		delete(s.inFlight, tag)
		<-s.room
	}
	return pub, found
}

func (s *confirming) condemn(r amqp.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pub := range s.inFlight {
		if pub.exchange == r.Exchange && pub.key == r.RoutingKey &&
			pub.msg.MessageId == r.MessageId && bytes.Equal(pub.msg.Body, r.Body) {
			pub.returned = &UnroutableError{Exchange: r.Exchange, RoutingKey: r.RoutingKey, Code: int(r.ReplyCode), Text: r.ReplyText}
		}
	}
}

func (s *confirming) answer(a amqp.Confirmation) {
	pub, found := s.take(a.DeliveryTag)
	switch {
	case !found: // its write failed
	case pub.returned != nil:
		pub.resolve(pub.returned)
	case !a.Ack:
		pub.resolve(ErrNacked)
	default:
		s.confirmed.Store(true)
		pub.resolve(nil)
	}
}

// fail resolves everything in flight when the channel is gone.
func (s *confirming) fail() {
	s.condemnAll()
	reason, broken := <-s.closes // closed, or holding the error, before answers was closed
	s.reason = errGone
	if broken {
		s.reason = reason
	}
	s.mu.Lock()
	lost := s.inFlight
	s.inFlight = map[uint64]*publication{}
	s.mu.Unlock()
	for _, pub := range lost {
		switch {
		case pub.returned != nil:
			pub.resolve(pub.returned)
		case reason != nil && reason.Code == amqp.NotFound && strings.Contains(reason.Reason, fmt.Sprintf("no exchange '%s' in vhost", pub.exchange)):
			pub.resolve(&UnroutableError{Exchange: pub.exchange, RoutingKey: pub.key, Code: reason.Code, Text: reason.Reason})
		default:
			pub.resolve(fmt.Errorf("%w: %w", ErrUnconfirmed, s.reason))
		}
	}
}
