package amqpconn

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/backoff"
)

func TestBlockedConnectionIsNotWritable(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &Conn{writable: open}
	writable := func() bool {
		select {
		case <-c.Writable():
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
			t.Fatalf("writable after blocked %t: got %t, want %t", step.blocked, got, step.want)
		}
	}
	waiting := c.Writable()
	c.block(false, "")
	<-waiting
}

// A slow logger or observer must not delay the goroutine that reads.
func TestBlockingLoggerDoesNotKeepConnectionBlocked(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &Conn{writable: open, blockings: make(chan blocking)}
	for _, blocked := range []bool{true, false, true, false} {
		c.blockedBy(blocking{active: blocked})
	}
	<-c.Writable()
}

// closedClient is a client whose connection has closed.
type closedClient struct{ client }

func (closedClient) err() *amqp.Error { return nil }
func (closedClient) ended() <-chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}

// If a connection is blocked, unblocked and lost in quick succession, the events keep that order.
func TestLinkReportsEventsInOrder(t *testing.T) {
	for range 100 { // select chooses a random ready channel
		ctx, cancel := context.WithCancel(t.Context())
		var seen []Change
		cfg := LinkConfig{
			Name:   "test publish",
			Logger: slog.New(slog.DiscardHandler),
			Observe: func(change Change, _ error) {
				seen = append(seen, change)
				if change == Disconnected {
					cancel()
				}
			},
			Reconnect: backoff.Exponential{Initial: time.Hour, Max: time.Hour},
		}
		all, err := ParseURL("amqp://host")
		if err != nil {
			t.Fatal(err)
		}
		var tasks Tasks
		l := NewLink(cfg, all.Rotation(), &tasks)
		open := make(chan struct{})
		close(open)
		c := &Conn{writable: open, log: l.log, lost: make(chan struct{}), blockings: make(chan blocking, 4), raw: closedClient{}, socket: &socket{}}
		for _, blocked := range []bool{true, false, true} {
			c.blockedBy(blocking{active: blocked})
		}
		c.watch()
		l.Run(ctx, c)
		if want := []Change{Connected, Blocked, Unblocked, Blocked, Disconnected}; !slices.Equal(seen, want) {
			t.Fatalf("events: got %v, want %v", seen, want)
		}
	}
}
