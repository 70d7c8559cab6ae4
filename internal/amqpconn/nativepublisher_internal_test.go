package amqpconn

import (
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// A publication that could not be written has the tag of its former channel. It must not take the place of another publication
// with this tag.
func TestFormerTagHasNoEffect(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Shutdown(t.Context()) }()
	addresses, err := ParseURL("amqp://guest:guest@memory")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := b.DialContext(t.Context(), "tcp", "memory")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := openNative(socket, addresses[0], t.Name(), 0, func(blocking) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close(time.Now())
	ch, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.close(); err != nil {
		t.Fatal(err)
	}
	other := &Publication{done: make(chan struct{})}
	s := &nativePublisher{ch: ch.(*nativeChannel), next: 8, oldest: 1, inFlight: map[uint64]*Publication{7: other}}
	if err := s.publish(&Publication{Message: &Message{}, tag: 7}); !errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v, want ErrNotWritten", err)
	}
	if s.inFlight[7] != other {
		t.Error("the other publication gets no answer")
	}
}
