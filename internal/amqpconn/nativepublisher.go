package amqpconn

import (
	"errors"
	"fmt"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// nativePublisher publishes on a channel in confirm mode.
type nativePublisher struct {
	ch *nativeChannel

	mu           sync.Mutex
	inFlight     inFlight // without an answer
	next, oldest uint64   // all publications before oldest have an answer
	ended        bool     // no further publication gets an answer
}

// answer is the broker's answer to a publication.
type answer int

// Answers of the broker.
const (
	none answer = iota // the channel has closed
	acked
	nacked
)

func (s *nativePublisher) publish(p *Publication) error {
	properties := p.Message.properties(persistent)
	done := make(chan struct{})
	p.answered, p.done, p.answer, p.returned, p.tag = done, done, none, nil, 0 // no publication has the tag 0
	err := s.ch.Publish(&amqpwire.BasicPublish{Exchange: p.Exchange, RoutingKey: p.RoutingKey, Mandatory: true}, &properties, p.Message.Body, false, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			return amqpclient.ErrClosed
		}
		p.tag = s.next
		s.inFlight[p.tag] = p // before its answer can arrive
		s.next++
		return nil
	})
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFlight, p.tag)
	p.returned = nil // any return belongs to an equal message
	switch {
	case errors.Is(err, amqpclient.ErrClosed):
		return ErrNotWritten
	case errors.Is(err, amqpclient.ErrEncode):
		return fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	return clientError(err)
}

func (s *nativePublisher) result(p *Publication) error {
	switch {
	case p.returned != nil:
		return p.returned
	case p.answer == acked:
		return nil
	case p.answer == nacked:
		return ErrNacked
	}
	return errChannelClosed
}

func (s *nativePublisher) confirmed(tag uint64, multiple, nack bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := acked
	if nack {
		a = nacked
	}
	if !multiple {
		s.answer(tag, a)
		return
	}
	if tag == 0 { // all
		tag = s.next - 1
	}
	for ; s.oldest <= tag && s.oldest < s.next; s.oldest++ {
		s.answer(s.oldest, a)
	}
}

func (s *nativePublisher) answer(tag uint64, a answer) {
	if p := s.inFlight[tag]; p != nil {
		delete(s.inFlight, tag)
		p.answer = a
		close(p.done)
	}
}

func (s *nativePublisher) returned(m *amqpwire.BasicReturn, c *amqpclient.Content) {
	var properties amqpwire.Properties
	if properties.Parse(c.Properties, amqpwire.PropMessageID) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight.returned(&Return{Code: int(m.ReplyCode), Text: m.ReplyText}, m.Exchange, m.RoutingKey, properties.MessageID, c.Body)
}

// end answers all publications in flight.
func (s *nativePublisher) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for tag := range s.inFlight {
		s.answer(tag, none)
	}
}
