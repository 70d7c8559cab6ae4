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

// The AMQP client drops a notification that is not received within 5 s. A slow logger must not cause such a loss.
func TestBlockingLoggerDoesNotKeepConnectionBlocked(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &Conn{writable: open, lost: make(chan struct{}), blockings: make(chan amqp.Blocking), socket: &socket{}}
	closes, blocks := make(chan *amqp.Error), make(chan amqp.Blocking)
	go c.watch(closes, blocks)
	for _, blocked := range []bool{true, false, true, false} {
		blocks <- amqp.Blocking{Active: blocked}
	}
	<-c.Writable()
	close(closes)
	<-c.lost
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
		c := &Conn{writable: open, log: l.log, lost: make(chan struct{}), blockings: make(chan amqp.Blocking, 4), socket: &socket{}}
		closes, blocks := make(chan *amqp.Error), make(chan amqp.Blocking)
		_ = tasks.Go(func() { c.watch(closes, blocks) })
		for _, blocked := range []bool{true, false, true} {
			blocks <- amqp.Blocking{Active: blocked}
		}
		close(closes)
		<-c.lost
		l.Run(ctx, c)
		if want := []Change{Connected, Blocked, Unblocked, Blocked, Disconnected}; !slices.Equal(seen, want) {
			t.Fatalf("events: got %v, want %v", seen, want)
		}
	}
}
