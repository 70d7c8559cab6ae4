package reprise

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

func TestBlockedConnectionIsNotWritable(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &conn{writable: open}
	writable := func() bool {
		select {
		case <-c.mayWrite():
			return true
		default:
			return false
		}
	}
	for _, step := range []struct{ blocked, want bool }{
		{false, true}, {true, false}, {true, false}, {false, true}, {false, true}, {true, false},
	} {
		c.block(step.blocked, "low on memory")
		if got := writable(); got != step.want {
			t.Fatalf("after blocked %t: writable %t", step.blocked, got)
		}
	}
	waiting := c.mayWrite()
	c.block(false, "")
	<-waiting
}

// The AMQP client drops a notification that is not taken within 5 s, however
// long a logger takes.
func TestAStuckLoggerDoesNotKeepAConnectionBlocked(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &conn{writable: open, lost: make(chan struct{}), noted: make(chan amqp.Blocking), socket: &socket{}}
	closes, blocks := make(chan *amqp.Error), make(chan amqp.Blocking)
	go c.watch(closes, blocks)
	for _, blocked := range []bool{true, false, true, false} {
		blocks <- amqp.Blocking{Active: blocked}
	}
	<-c.mayWrite()
	close(closes)
	<-c.lost
}

// A connection that is blocked, unblocked and lost at once is told of in that order.
func TestEventsOfAConnectionAreInOrder(t *testing.T) {
	for range 100 { // select picks among ready channels at random
		ctx, cancel := context.WithCancel(t.Context())
		var seen []EventKind
		cfg := Config{
			Logger: slog.New(slog.DiscardHandler),
			Observer: ObserverFunc(func(e Event) {
				seen = append(seen, e.Kind)
				if e.Kind == EventDisconnected {
					cancel()
				}
			}),
			Reconnect: backoff.Exponential{Initial: time.Hour, Max: time.Hour},
		}
		all, err := parseURL("amqp://host")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		l := newLink("publish", newRotation(all), cfg, &wg)
		open := make(chan struct{})
		close(open)
		c := &conn{writable: open, log: l.log, lost: make(chan struct{}), noted: make(chan amqp.Blocking, 4), socket: &socket{}}
		closes, blocks := make(chan *amqp.Error), make(chan amqp.Blocking)
		wg.Go(func() { c.watch(closes, blocks) })
		for _, blocked := range []bool{true, false, true} {
			blocks <- amqp.Blocking{Active: blocked}
		}
		close(closes)
		<-c.lost
		wg.Go(func() { l.run(ctx, c) })
		wg.Wait()
		if want := []EventKind{EventConnected, EventBlocked, EventUnblocked, EventBlocked, EventDisconnected}; !slices.Equal(seen, want) {
			t.Fatalf("told of %v, want %v", seen, want)
		}
	}
}

// Routing keys are the messages' own: there is no end of them.
func TestWhatIsDeclaredIsRememberedByExchange(t *testing.T) {
	for _, tc := range []struct {
		a, b topology.Hop
		same bool
	}{
		{topology.Hop{Exchange: "x", RoutingKey: "a"}, topology.Hop{Exchange: "x", RoutingKey: "b"}, true},
		{topology.Hop{Exchange: "x", RoutingKey: "a"}, topology.Hop{Exchange: "y", RoutingKey: "a"}, false},
		{topology.Hop{RoutingKey: "a"}, topology.Hop{RoutingKey: "b"}, false},
		{topology.Hop{RoutingKey: "x"}, topology.Hop{Exchange: "x"}, false},
	} {
		if same := keyOf(tc.a) == keyOf(tc.b); same != tc.same {
			t.Errorf("%+v and %+v: the same %t", tc.a, tc.b, same)
		}
	}
}
