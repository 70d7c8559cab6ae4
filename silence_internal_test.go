package reprise

import (
	"context"
	"net"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// lastMoment is of a message whose channel ends just when somebody asks whether it was
// answered: the AMQP client then has it count as refused.
type lastMoment struct {
	ch *amqp.Channel
	t  *testing.T
}

func (m lastMoment) Done() <-chan struct{} {
	if err := m.ch.Close(); err != nil {
		m.t.Fatal(err)
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (lastMoment) Acked() bool { return false }

// channelOfItsOwn is one that nobody listens to, of a broker in memory, with room
// for a message.
func channelOfItsOwn(t *testing.T) (*confirming, *publication) {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	raw, err := amqp.DialConfig("amqp://guest:guest@broker/", amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return b.DialContext(t.Context(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	ch, err := raw.Channel()
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{Connection: raw, socket: &socket{}, writable: make(chan struct{})}
	close(c.writable)
	s := &confirming{
		conn: c, ch: ch, detours: &detours{}, pulse: newPulse(c, DefaultConfirmTimeout),
		inFlight: map[uint64]*publication{}, room: make(chan struct{}, 1),
	}
	s.room <- struct{}{}
	return s, newPublication("", "q", amqp.Publishing{})
}

func TestTheEndOfAChannelIsNoAnswer(t *testing.T) {
	s, pub := channelOfItsOwn(t)
	s.register(1, pub)
	s.sent(pub, lastMoment{s.ch, t})
	s.look()
	select {
	case <-pub.done:
		t.Errorf("it counts as answered: %v", pub.err)
	default:
	}
}

// What is returned while a message like it could not be written says nothing of that
// one, which goes on another channel.
func TestAMessageThatWasNotWrittenWasNotReturned(t *testing.T) {
	s, pub := channelOfItsOwn(t)
	if err := s.ch.Close(); err != nil {
		t.Fatal(err)
	}
	pub.returned = &UnroutableError{RoutingKey: "q"}
	if s.write(pub) {
		t.Error("it was written on a channel that is closed")
	}
	if pub.returned != nil {
		t.Errorf("it was returned: %v", pub.returned)
	}
}
