package reprise

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

// confirming is one channel in confirm mode, and what is in flight on it.
//
// The broker answers each message with a confirm, by number, preceded by a
// return if the message could not be routed (it confirms those too). A return
// carries no number, so it condemns every message in flight that equals it in
// exchange, key, message id and body: to publish once too often is a duplicate
// with the same id, to believe a confirm once too often is a loss.
type confirming struct {
	conn    *amqpconn.Conn
	ch      *amqp.Channel
	returns chan amqp.Return
	answers chan amqp.Confirmation
	closes  chan *amqp.Error

	trials   trials
	detours  *detours
	onDetour bool // it is for one destination that does not confirm
	wg       *sync.WaitGroup
	pulse    pulse

	mu       sync.Mutex // never held across a call into the AMQP client
	inFlight map[uint64]*publication
	trial    trial         // that is under way
	room     chan struct{} // a token for each publication in flight

	confirmed atomic.Bool   // the broker has taken at least one message
	over      chan struct{} // closed when it is dead, or set aside: it takes no messages any more
	dead      chan struct{} // closed when the channel is gone and everything in flight resolved
	reason    error         // why; valid once dead is closed
	blamed    bool          // it was for a message's sake; as reason
}

// maxInFlight bounds what is published and not answered. The AMQP client drops
// a notification that finds its channel full for 5 s, and a return that is
// dropped makes a loss. There is at most one return and one answer for each
// publication, so channels of this size are never full, however long this
// process is stopped.
const maxInFlight = 1024

func openConfirming(c *amqpconn.Conn, p *publisher) (*confirming, error) {
	ch, err := c.OpenRaw()
	if err != nil {
		return nil, err
	}
	s := &confirming{
		conn: c, ch: ch, trials: newTrials(p.user), over: make(chan struct{}), dead: make(chan struct{}),
		detours: p.detours, onDetour: p.onDetour, wg: p.client.tasks.WaitGroup(), pulse: newPulse(c, p.timeout),
		inFlight: map[uint64]*publication{},
		room:     make(chan struct{}, p.window),
		// Order between the two is restored by listen.
		returns: ch.NotifyReturn(make(chan amqp.Return, p.window)),
		answers: ch.NotifyPublish(make(chan amqp.Confirmation, p.window)),
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := c.Insist(func() error { return ch.Confirm(false) }); err != nil {
		c.CloseRaw(ch)
		return nil, err
	}
	return s, nil
}

// listen takes returns and confirms until the channel is gone. It never waits
// for anything else: the client's only reader goroutine waits for it.
func (s *confirming) listen() {
	defer s.end()
	for {
		select {
		case <-s.pulse.C:
			s.look()
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
			s.answer(a.DeliveryTag)
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
	pub.beat, pub.heard = s.pulse.begin(), s.detours.answers.Load()
}

// forget takes back a publication that was not written, and reports whether it has
// no result yet; the caller then sees to one.
func (s *confirming) forget(tag uint64, pub *publication) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pull(tag) != nil || pub.answered
}

// pull removes a publication from those in flight, which makes room for another.
func (s *confirming) pull(tag uint64) *publication {
	pub := s.inFlight[tag]
	if pub != nil {
		delete(s.inFlight, tag)
		pub.age = s.pulse.beats - pub.beat
		<-s.room
	}
	return pub
}

func (s *confirming) condemn(r amqp.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pub := range s.inFlight {
		if pub.exchange == r.Exchange && pub.key == r.RoutingKey &&
			pub.msg.MessageID == r.MessageId && bytes.Equal(pub.msg.Body, r.Body) {
			pub.returned = &UnroutableError{Exchange: r.Exchange, RoutingKey: r.RoutingKey, Code: int(r.ReplyCode), Text: r.ReplyText}
		}
	}
}

// answer and sent meet for every message: whoever comes second concludes. The
// AMQP client tells of answers in the order of the tags, and where it has held one
// back for that, an ack of several tells over it, and makes a nack an ack. What it
// gives to whom it publishes for does not have that fault, but comes with the end
// of the write, which may be after the answer.
func (s *confirming) answer(tag uint64) {
	s.mu.Lock()
	pub := s.pull(tag)
	early := pub != nil && pub.confirmation == nil
	if early {
		pub.answered = true
	}
	s.mu.Unlock()
	if pub != nil && !early { // nil: its write failed
		s.conclude(pub)
	}
}

func (s *confirming) sent(pub *publication, c confirmation) {
	s.mu.Lock()
	pub.confirmation = c
	answered := pub.answered
	s.mu.Unlock()
	if answered {
		s.conclude(pub)
	}
}

// conclude resolves a publication that was answered.
func (s *confirming) conclude(pub *publication) {
	s.detours.heard(pub, pub.age < lateBeats)
	switch {
	case pub.returned != nil:
		pub.resolve(pub.returned)
	case !pub.confirmation.Acked():
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
	s.reason = amqpconn.ErrGone
	if broken {
		s.reason = reason
		if limit := sizeLimit(reason); limit > 0 {
			s.conn.MaxBody.Store(int64(limit))
		}
	}
	s.detours.silent.Store(false)
	s.mu.Lock()
	lost, present := s.inFlight, s.trial
	s.inFlight = map[uint64]*publication{}
	var held []*publication // whose confirms the AMQP client has not told
	for tag, pub := range lost {
		if pub.confirmation != nil && pub.confirmation.Acked() {
			held = append(held, pub)
			delete(lost, tag)
		}
	}
	s.mu.Unlock()
	for _, pub := range held {
		s.conclude(pub)
	}
	for _, pub := range lost {
		err := fmt.Errorf("%w: %w", ErrUnconfirmed, s.reason)
		if pub.returned != nil {
			err = pub.returned
		} else if broken {
			if guilty := blame(pub, reason, present, len(lost) == 1); guilty != nil {
				s.blamed = true
				err = guilty
			}
		}
		pub.resolve(err)
	}
}
