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

// The number of routing keys is unlimited. Late destinations beyond maxBulkheads share bulkheads.
// Late destinations beyond maxLate are forgotten.
func TestLateDestinationsAreBounded(t *testing.T) {
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
			t.Fatalf("destination %d is forgotten at once", i)
		}
	}
	if len(p.late) != maxLate || len(p.bulkheads) != maxBulkheads {
		t.Errorf("%d destinations are remembered, with %d bulkheads", len(p.late), len(p.bulkheads))
	}
	each := map[*lane]int{}
	for _, l := range p.late {
		each[l]++
	}
	for l, n := range each {
		if n != l.destinations {
			t.Errorf("a bulkhead has %d destinations, and counts %d", n, l.destinations)
		}
	}
	for i := range 3 * maxLate {
		p.answered(&lane{}, late(i), true)
	}
	if len(p.late) > 0 || p.anyLate.Load() || p.IsLate(late(0)) {
		t.Errorf("%d destinations are late that have answered in time", len(p.late))
	}
	p.markLate(late(0))
	if p.answered(&lane{}, late(0), false); !p.IsLate(late(0)) {
		t.Error("a late answer ends the bulkhead")
	}
}

func TestProof(t *testing.T) {
	var k proven
	k.forget("me")
	for _, m := range []*Message{message("", "", 0), message("", "me", harmless)} {
		if !k.has(m) {
			t.Errorf("exchange %q, user %q: needs proof", m.Exchange, m.Message.UserID)
		}
	}
	for _, m := range []*Message{message("x", "", 0), message("", "other", 0), message("", "", harmless+1)} {
		for _, err := range []error{
			&RefusedError{}, &UnroutableError{Code: 404}, &TooLargeError{}, fmt.Errorf("%w: closed", ErrUnconfirmed),
		} {
			if k.note(m, err); k.has(m) {
				t.Errorf("exchange %q, user %q: proven by %v", m.Exchange, m.Message.UserID, err)
			}
		}
	}
	for i, m := range []*Message{message("x", "", 0), message("", "other", 0), message("", "", harmless+1)} {
		if k.note(m, []error{nil, amqpconn.ErrNacked, &UnroutableError{Code: 312}}[i]); !k.has(m) {
			t.Errorf("exchange %q, user %q: not proven", m.Exchange, m.Message.UserID)
		}
	}
	refusal := &amqpconn.Refusal{Code: 403, Text: "ACCESS_REFUSED"}
	k.refused(refusal, nil)
	if !k.has(message("x", "me", 0)) {
		t.Error("a refused message that had proven nothing costs others their proof")
	}
	guilty := message("x", "other", 0)
	guilty.RoutingKey = "secret"
	k.refused(refusal, []*Message{guilty})
	if k.has(message("x", "", 0)) || k.has(message("", "other", 0)) || !k.has(message("", "me", 0)) {
		t.Error("what may be refused is proven, or what may not is not")
	}
	if k.note(message("x", "", 0), nil); !k.has(message("x", "", 0)) || k.has(guilty) {
		t.Error("another routing key of the exchange proves the one that may be refused")
	}
	k.forget("me")
	for i := range 3 * maxProven {
		m := message(fmt.Sprint(i), fmt.Sprint(i), 0)
		if k.note(m, nil); !k.has(m) {
			t.Fatalf("%d is forgotten at once", i)
		}
	}
	for i := range 3 * maxProven {
		m := message("", "", 0)
		m.RoutingKey = fmt.Sprint(i)
		if k.refused(refusal, []*Message{m}); k.has(m) {
			t.Fatalf("key %d is forgotten at once", i)
		}
	}
	if len(k.exchanges) > maxProven || len(k.users) > maxProven || len(k.suspects) > maxProven {
		t.Errorf("%d exchanges and %d users are remembered", len(k.exchanges), len(k.users))
	}
}

func TestBlame(t *testing.T) {
	for name, tt := range map[string]struct {
		size    int
		refusal amqpconn.Refusal
		sole    bool
		want    string // error message; "" for no error
	}{
		"no such exchange":     {0, amqpconn.Refusal{Code: 404, Text: "NOT_FOUND - no exchange 'x' in vhost '/'"}, true, `exchange "x" does not exist`},
		"one of several":       {0, amqpconn.Refusal{Code: 404, Text: "NOT_FOUND - no exchange 'x' in vhost '/'"}, false, ""},
		"no permission":        {0, amqpconn.Refusal{Code: 403, Text: "ACCESS_REFUSED"}, true, `refused the message for exchange "x"`},
		"too large":            {11, amqpconn.Refusal{Code: 406, Text: "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"}, false, "has 11 bytes, the broker takes 10 at most"},
		"another is too large": {10, amqpconn.Refusal{Code: 406, Text: "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"}, false, ""},
	} {
		err := causeFor(message("x", "", tt.size), &tt.refusal, tt.sole)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	if !errors.Is(&UnroutableError{}, ErrUnroutable) {
		t.Error("an UnroutableError does not match ErrUnroutable")
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
			t.Fatalf("message %d is not the next one", i)
		}
	}
	select {
	case <-l.more:
	default:
		t.Error("a lane without messages is not told that one was moved")
	}
}
