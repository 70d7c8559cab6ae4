package workertest

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// garbledConn is a connection that, if now is set, replaces the next data that it reads with invalid AMQP.
type garbledConn struct {
	net.Conn
	now *atomic.Bool
}

func (g garbledConn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err == nil && g.now.Load() {
		return copy(p, "\xff no frame begins so"), nil
	}
	return n, err
}

// Any of the delivered messages may be unreadable. Therefore the worker receives one message at a time until it has settled
// a message.
func TestWorkerReducesPrefetchAfterUnreadableMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		var dials atomic.Int32
		var now atomic.Bool
		c := dial(t, b.URL, func(c *reprise.Config) {
			c.Dial = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				if conn, err = (&net.Dialer{}).DialContext(ctx, network, addr); err == nil && dials.Add(1) == consumes {
					conn = garbledConn{conn, &now}
				}
				return conn, err
			}
		})
		h := newHeldHandler(t)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Concurrency: 3})
		for range 3 {
			r.publish("", queue, amqp.Publishing{})
		}
		lost := []attempt{h.next(), h.next(), h.next()}
		now.Store(true)
		r.publish("", queue, amqp.Publishing{})
		// With RabbitMQ before 4.3, a worker also begins with one message at a time (see consume.CountsNacks).
		want, before := "16 1 16", 1
		if b.Version == "3.10" {
			want, before = "1 16 1 16", 2
		}
		c.log.wait(t, "consuming", before+1)
		for _, l := range lost {
			l.result <- nil // has no effect, because the connection is lost
		}
		h.next().result <- nil // one message at a time
		c.log.wait(t, "consuming", before+2)
		rest := []attempt{h.next(), h.next(), h.next()} // now concurrently
		for _, a := range rest {
			a.result <- nil
		}
		var prefetch []string
		for line := range strings.Lines(c.log.String()) {
			if _, n, found := strings.Cut(line, "prefetch="); found {
				prefetch = append(prefetch, strings.TrimSpace(n))
			}
		}
		if got := strings.Join(prefetch, " "); got != want {
			t.Errorf("prefetch: got %s, want %s", got, want)
		}
	})
}
