package reprise

import (
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

func TestRetrierForgetsFailuresAfterASteadyTime(t *testing.T) {
	r := retrier{schedule: backoff.Exponential{Initial: time.Second}}
	for i, step := range []struct{ lasted, want time.Duration }{
		{0, time.Second}, {0, 2 * time.Second}, {steady - 1, 4 * time.Second}, {steady, time.Second}, {0, 2 * time.Second},
	} {
		if got := r.failed(step.lasted); got != step.want {
			t.Errorf("failure %d: next in %s, want %s", i+1, got, step.want)
		}
	}
}

// The AMQP client drops a notification that is not taken within 5 s, however
// long a logger takes.
func TestAStuckLoggerDoesNotKeepAConnectionBlocked(t *testing.T) {
	open := make(chan struct{})
	close(open)
	c := &conn{writable: open, lost: make(chan struct{}), socket: &socket{}}
	closes, blocks := make(chan *amqp.Error), make(chan amqp.Blocking)
	go c.watch(closes, blocks, make(chan amqp.Blocking))
	for _, blocked := range []bool{true, false, true, false} {
		blocks <- amqp.Blocking{Active: blocked}
	}
	<-c.mayWrite()
	close(closes)
	<-c.lost
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
