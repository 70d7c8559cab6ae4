package reprise

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

func pub(exchange, key, id, body string) *publication {
	p := newPublication(exchange, key, amqpconn.Message{MessageID: id, Body: []byte(body)})
	p.confirmation = isAck(true)
	return p
}

// isAck is an answer.
type isAck bool

func (a isAck) Acked() bool         { return bool(a) }
func (isAck) Done() <-chan struct{} { return nil }

func ret(exchange, key, id, body string) amqp.Return {
	return amqp.Return{Exchange: exchange, RoutingKey: key, MessageId: id, Body: []byte(body), ReplyCode: 312, ReplyText: "NO_ROUTE"}
}

func newConfirming() *confirming {
	return &confirming{
		inFlight: map[uint64]*publication{}, room: make(chan struct{}, 8), over: make(chan struct{}), dead: make(chan struct{}),
		detours: &detours{}, pulse: pulse{Timer: time.NewTimer(time.Hour), beating: true},
		returns: make(chan amqp.Return, 8), answers: make(chan amqp.Confirmation, 8), closes: make(chan *amqp.Error, 1),
	}
}

// enter is what serve and write do.
func (s *confirming) enter(tag uint64, pub *publication) {
	s.room <- struct{}{}
	s.register(tag, pub)
}

// listenTo plays what the broker sends, in whichever order it is picked up.
func (s *confirming) listenTo(reason *amqp.Error, events ...any) {
	for _, e := range events {
		switch e := e.(type) {
		case amqp.Return:
			s.returns <- e
		case amqp.Confirmation:
			s.answers <- e
		}
	}
	if reason != nil {
		s.closes <- reason
	}
	close(s.closes) // in the client's order
	close(s.returns)
	close(s.answers)
	s.listen()
	<-s.dead
}

func TestAReturnCondemnsAllItMayMean(t *testing.T) {
	for range 100 { // select picks among ready channels at random
		s := newConfirming()
		twin1, twin2 := pub("x", "k", "id", "body"), pub("x", "k", "id", "body")
		others := []*publication{pub("y", "k", "id", "body"), pub("x", "l", "id", "body"), pub("x", "k", "di", "body"), pub("x", "k", "id", "ydob")}
		s.enter(1, twin1)
		s.enter(2, twin2)
		for i, o := range others {
			s.enter(uint64(3+i), o)
		}
		events := []any{ret("x", "k", "id", "body")}
		for tag := range uint64(6) {
			events = append(events, amqp.Confirmation{DeliveryTag: tag + 1, Ack: true})
		}
		s.listenTo(nil, events...)
		for _, p := range []*publication{twin1, twin2} {
			if _, ok := errors.AsType[*UnroutableError](p.err); !ok {
				t.Fatalf("a returned message: %v", p.err)
			}
		}
		for i, o := range others {
			if o.err != nil {
				t.Fatalf("message %d was not returned: %v", 3+i, o.err)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	s := newConfirming()
	acked, nacked, open, noExchange, returned := pub("x", "k", "1", ""), pub("x", "k", "2", ""), pub("x", "k", "3", ""), pub("gone", "k", "4", ""), pub("x", "k", "5", "")
	for i, p := range []*publication{acked, nacked, open, noExchange, returned} {
		s.enter(uint64(i+1), p)
	}
	for _, p := range []*publication{nacked, open, noExchange, returned} {
		p.confirmation = isAck(false)
	}
	s.trial = trial{exchange: "gone"}
	noExchange.trial = s.trial
	reason := &amqp.Error{Code: amqp.NotFound, Reason: "NOT_FOUND - no exchange 'gone' in vhost '/'", Server: true, Recover: true}
	s.listenTo(reason,
		amqp.Confirmation{DeliveryTag: 1, Ack: true},
		amqp.Confirmation{DeliveryTag: 2, Ack: true},  // so says the AMQP client when an ack of several follows
		amqp.Confirmation{DeliveryTag: 99, Ack: true}, // of a write that failed
		ret("x", "k", "5", ""),
	)
	if acked.err != nil || !s.confirmed.Load() {
		t.Errorf("acked: %v", acked.err)
	}
	if !errors.Is(nacked.err, ErrNacked) {
		t.Errorf("nacked: %v", nacked.err)
	}
	if !errors.Is(open.err, ErrUnconfirmed) || !errors.Is(open.err, reason) {
		t.Errorf("not answered: %v", open.err)
	}
	if e, ok := errors.AsType[*UnroutableError](noExchange.err); !ok || e.Code != 404 {
		t.Errorf("missing exchange: %v", noExchange.err)
	}
	if !s.blamed {
		t.Error("the channel's end was not put down to the message")
	}
	if e, ok := errors.AsType[*UnroutableError](returned.err); !ok || e.Code != 312 {
		t.Errorf("returned, and not confirmed: %v", returned.err)
	}
	if s.forget(3, open) {
		t.Error("a resolved message was still in flight")
	}
}

// The broker may answer before the AMQP client's write has returned.
func TestAnAnswerThatComesBeforeTheWriteEnds(t *testing.T) {
	for _, ack := range []bool{true, false} {
		s, p := newConfirming(), pub("", "k", "id", "")
		p.confirmation = nil
		s.enter(1, p)
		s.answer(1)
		select {
		case <-p.done:
			t.Fatalf("it was concluded before it was known how: %v", p.err)
		default:
		}
		s.sent(p, isAck(ack))
		<-p.done
		if (p.err == nil) != ack {
			t.Errorf("acked %t: %v", ack, p.err)
		}
	}
	s, failed, lost := newConfirming(), pub("", "k", "id", ""), pub("", "k", "id", "")
	failed.confirmation = nil
	s.enter(1, failed)
	s.enter(2, lost)
	s.answer(1)
	if !s.forget(1, failed) {
		t.Error("a write that failed leaves its message without a result")
	}
	s.listenTo(nil)
	if s.forget(2, lost) {
		t.Error("a message that was resolved is said to have no result")
	}
}
