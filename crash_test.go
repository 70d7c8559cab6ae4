package reprise_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// lines leads the two connections of a client over a proxy each, so that they
// can be cut one by one.
type lines struct {
	addr [2]string // of the proxies

	mu   sync.Mutex
	busy [2]bool
}

const (
	publishing = iota
	consuming
)

var lineNames = [...]string{"publishing", "consuming"}

// dial uses the line that is free. Clients open the publishing one first, and
// open one again only when it was closed.
func (l *lines) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	l.mu.Lock()
	line := publishing
	if l.busy[publishing] {
		line = consuming
	}
	l.busy[line] = true
	l.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, l.addr[line])
	if err != nil {
		l.free(line)
		return nil, err
	}
	return &lineConn{Conn: conn, free: sync.OnceFunc(func() { l.free(line) })}, nil
}

func (l *lines) free(line int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy[line] = false
}

type lineConn struct {
	net.Conn
	free func()
}

func (c *lineConn) Close() error {
	c.free()
	return c.Conn.Close()
}

// A place is where a connection is cut.
type place struct {
	line      int
	direction testkit.Direction
	cut       func(p *testkit.Proxy, d testkit.Direction, n int) <-chan struct{}
	name      string
}

func places() (all []place) {
	for line := range lineNames {
		for _, d := range []testkit.Direction{testkit.ToServer, testkit.ToClient} {
			all = append(all,
				place{line, d, (*testkit.Proxy).CutAfterFrame, fmt.Sprintf("%s, %s, after frame", lineNames[line], d)},
				place{line, d, (*testkit.Proxy).CutBeforeFrame, fmt.Sprintf("%s, %s, before frame", lineNames[line], d)})
		}
	}
	return all
}

// Every connection is cut at every frame boundary in the life of a message
// that fails, is retried, fails again and is parked: from the first frame after
// the worker consumes to the last. Nothing is lost, and all duplicates bear the
// message's id.
func TestNothingIsLostWhereverAConnectionIsCut(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, at := range places() {
			t.Run(at.name, func(t *testing.T) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{Base: 20 * time.Millisecond})
				proxies := [2]*testkit.Proxy{testkit.NewProxy(t, b.URL), testkit.NewProxy(t, b.URL)}
				ways := &lines{addr: [2]string{proxies[0].Addr(), proxies[1].Addr()}}
				h := newScript(func(*reprise.Message) error { return errScripted })
				c := dial(t, b.URL, func(c *reprise.Config) { c.Dial = ways.dial })
				start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(2), Prefetch: 3})

				parked := map[string]int{}
				for n := 1; ; n++ {
					cut := at.cut(proxies[at.line], at.direction, n)
					id := fmt.Sprint("message-", n)
					r.publish("", queue, amqp.Publishing{MessageId: id, Body: []byte(id)})
					for parked[id] == 0 {
						d := r.take(queue + ".failed")
						if string(d.Body) != d.MessageId {
							t.Fatalf("parked %q with id %q", d.Body, d.MessageId)
						}
						parked[d.MessageId]++
					}
					r.quiet(c, h, queue, queue+".wait.0-20")
					select {
					case <-cut:
						continue
					default:
					}
					if n < 3 {
						t.Errorf("the life of a message had %d places to cut at", n-1)
					}
					if len(parked) != n { // and each of them was waited for
						t.Errorf("%d messages were published, these were parked: %v", n, parked)
					}
					t.Logf("cut at %d places; %d attempts for %d messages", n-1, h.count(), n)
					return
				}
			})
		}
	})
}

// quiet waits until nothing seems to be under way any more, so that the next
// cut comes where it is meant to.
func (r *raw) quiet(c client, h *script, queues ...string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() error {
		for _, q := range queues {
			if n := r.depth(q); n > 0 {
				return fmt.Errorf("%d messages in %s", n, q)
			}
		}
		settled := c.log.count("retry") + c.log.count("parked") + c.log.count("copy dropped")
		if n := h.count(); n != settled {
			return fmt.Errorf("%d attempts, %d of them settled", n, settled)
		}
		return nil
	})
}
