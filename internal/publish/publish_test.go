package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

func message(exchange, user string, size int) *Message {
	return NewMessage(exchange, "key", &amqpconn.Message{UserID: user, Body: make([]byte, size)})
}

// The number of routing keys is unlimited. More than maxBulkheads late destinations share bulkheads, and more than maxLate
// are forgotten.
func TestPublisherLimitsLateDestinations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var tasks amqpconn.Tasks
	defer tasks.Close(context.Background(), cancel)
	p := &Publisher{cfg: Config{Tasks: &tasks}, ctx: ctx, late: map[destination]*lane{}}
	late := func(i int) *Message {
		return NewMessage("x", fmt.Sprint(i), &amqpconn.Message{})
	}
	for i := range 3 * maxLate {
		p.markLate(late(i))
		if !p.IsLate(late(i)) {
			t.Fatalf("destination %d was forgotten immediately", i)
		}
	}
	if len(p.late) != maxLate || len(p.bulkheads) != maxBulkheads {
		t.Errorf("got %d destinations and %d bulkheads, want %d and %d", len(p.late), len(p.bulkheads), maxLate, maxBulkheads)
	}
	each := map[*lane]int{}
	for _, l := range p.late {
		each[l]++
	}
	for l, n := range each {
		if n != l.destinations {
			t.Errorf("destinations of a bulkhead: got %d, want %d", l.destinations, n)
		}
	}
	for i := range 3 * maxLate {
		p.answered(&lane{}, late(i), true)
	}
	if len(p.late) > 0 || p.anyLate.Load() || p.IsLate(late(0)) {
		t.Errorf("late destinations after timely answers: got %d, want 0", len(p.late))
	}
	p.markLate(late(0))
	if p.answered(&lane{}, late(0), false); !p.IsLate(late(0)) {
		t.Error("destination is not late after a late answer")
	}
}

func TestProvenAfterAcceptedMessage(t *testing.T) {
	var k proven
	k.forget("me")
	for _, m := range []*Message{message("", "", 0), message("", "me", acceptedSize)} {
		if !k.has(m) {
			t.Errorf("exchange %q, user %q: not proven", m.Exchange, m.Message.UserID)
		}
	}
	for _, m := range []*Message{message("x", "", 0), message("", "other", 0), message("", "", acceptedSize+1)} {
		for _, err := range []error{
			&RefusedError{}, &UnroutableError{Code: 404}, &TooLargeError{}, fmt.Errorf("%w: closed", ErrUnconfirmed),
		} {
			if k.note(m, err); k.has(m) {
				t.Errorf("exchange %q, user %q: proven by %v", m.Exchange, m.Message.UserID, err)
			}
		}
	}
	for i, m := range []*Message{message("x", "", 0), message("", "other", 0), message("", "", acceptedSize+1)} {
		if k.note(m, []error{nil, amqpconn.ErrNacked, &UnroutableError{Code: 312}}[i]); !k.has(m) {
			t.Errorf("exchange %q, user %q: not proven", m.Exchange, m.Message.UserID)
		}
	}
	refusal := &amqpconn.Refusal{Code: 403, Text: "ACCESS_REFUSED"}
	k.refused(refusal, nil)
	if !k.has(message("x", "me", 0)) {
		t.Error("refusal without messages reset the proofs")
	}
	guilty := message("x", "other", 0)
	guilty.RoutingKey = "secret"
	k.refused(refusal, []*Message{guilty})
	if k.has(message("x", "", 0)) || k.has(message("", "other", 0)) || !k.has(message("", "me", 0)) {
		t.Error("refusal of a message reset the wrong proofs")
	}
	if k.note(message("x", "", 0), nil); !k.has(message("x", "", 0)) || k.has(guilty) {
		t.Error("refused routing key was proven by another routing key of the exchange")
	}
	k.forget("me")
	for i := range 3 * maxProven {
		m := message(fmt.Sprint(i), fmt.Sprint(i), 0)
		if k.note(m, nil); !k.has(m) {
			t.Fatalf("exchange %d was forgotten immediately", i)
		}
	}
	for i := range 3 * maxProven {
		m := message("", "", 0)
		m.RoutingKey = fmt.Sprint(i)
		if k.refused(refusal, []*Message{m}); k.has(m) {
			t.Fatalf("key %d was forgotten immediately", i)
		}
	}
	if len(k.exchanges) > maxProven || len(k.users) > maxProven || len(k.suspects) > maxProven {
		t.Errorf("got %d exchanges, %d users and %d suspects, want at most %d", len(k.exchanges), len(k.users), len(k.suspects), maxProven)
	}
}

func TestCauseForRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		size    int
		refusal amqpconn.Refusal
		sole    bool
		want    string // error message; "" for no error
	}{
		"no such exchange":     {0, amqpconn.Refusal{Code: 404, Text: "NOT_FOUND - no exchange 'x' in vhost '/'"}, true, `exchange "x" does not exist`},
		"one of several":       {0, amqpconn.Refusal{Code: 404, Text: "NOT_FOUND - no exchange 'x' in vhost '/'"}, false, ""},
		"no permission":        {0, amqpconn.Refusal{Code: 403, Text: "ACCESS_REFUSED"}, true, `refused the message for exchange "x"`},
		"too large":            {11, amqpconn.Refusal{Code: 406, Text: "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"}, false, "must have at most 10 bytes, the broker's max_message_size: got 11"},
		"another is too large": {10, amqpconn.Refusal{Code: 406, Text: "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"}, false, ""},
	} {
		err := causeFor(message("x", "", tt.size), &tt.refusal, tt.sole)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	if !errors.Is(&UnroutableError{}, ErrUnroutable) {
		t.Error("UnroutableError does not match ErrUnroutable")
	}
}

// A lane must not wait for another lane, because two lanes could wait for each other.
func TestLaneWritesMovedMessagesFirst(t *testing.T) {
	p := &Publisher{}
	l := p.newLane(probeLane, 1)
	requested := message("requested", "", 0)
	l.requests <- requested
	var moved []*Message
	for range 10 * maxQueued {
		m := message("moved", "", 0)
		moved = append(moved, m)
		l.move(m)
	}
	for i, want := range append(moved, requested, nil) {
		if m := l.next(); m != want {
			t.Fatalf("message %d is not the next message", i)
		}
	}
	select {
	case <-l.more:
	default:
		t.Error("lane was not notified of a moved message")
	}
}
