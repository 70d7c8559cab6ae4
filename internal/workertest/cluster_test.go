package workertest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// addresses returns the URL target with the given hosts.
func addresses(t testing.TB, target string, hosts ...string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(target, u.Host, strings.Join(hosts, ","), 1)
}

// lines returns the log lines of one kind of event.
func (r *records) lines(text string) (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.text == text {
			lines = append(lines, e.line)
		}
	}
	return lines
}

// A broker has two addresses. When one fails, both connections switch to the other address.
func TestClientFailsOverToAnotherAddress(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		proxies := []*testkit.Proxy{testkit.NewProxy(t, b.URL), testkit.NewProxy(t, b.URL)}
		proxies[0].Refuse()
		c := dial(t, addresses(t, b.URL, proxies[0].Addr(), proxies[1].Addr()))
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		for round := range 4 {
			failing, healthy := proxies[round%2], proxies[(round+1)%2]
			if round > 0 {
				healthy.Resume()
				failing.Refuse()
				failing.Cut()
			}
			c.log.wait(t, "connected", 2*round+2)
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
				t.Fatal(err)
			}
			if err := c.Healthy(t.Context()); err != nil {
				t.Fatal(err)
			}
			connected := c.log.lines("connected")
			for _, line := range connected[len(connected)-2:] {
				if !strings.Contains(line, "broker="+healthy.Addr()) {
					t.Errorf("log line must contain the address %s: got %s", healthy.Addr(), line)
				}
			}
			for _, line := range c.log.lines("connection lost") {
				if !strings.Contains(line, "broker="+proxies[0].Addr()) && !strings.Contains(line, "broker="+proxies[1].Addr()) {
					t.Errorf("log line must contain the address of a proxy: got %s", line)
				}
				if strings.Contains(line, "Exception (501)") {
					t.Errorf("log line must not contain the error text of the AMQP client: got %s", line)
				}
			}
		}
	})
}

// hosts maps addresses to brokers in memory.
type hosts map[string]*broker.Broker

func (h hosts) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if b := h[addr]; b != nil {
		return b.DialContext(ctx, network, addr)
	}
	return nil, errUnreachable
}

func (h hosts) start(t *testing.T, addr string, users map[string]string) {
	t.Helper()
	b, err := broker.New(broker.Config{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	h[addr] = b
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
}

// If one node rejects the user, Dial tries the next node. If no node accepts the user, Dial returns an error, even if some
// nodes are unreachable.
func TestDialTriesNextAddressAfterRefusedUser(t *testing.T) {
	t.Parallel()
	others, ada := map[string]string{"bob": "s3cret"}, map[string]string{"ada": "s3cret"}
	for name, tc := range map[string]struct {
		nodes map[string]map[string]string
		ok    bool
	}{
		"one accepts":                         {map[string]map[string]string{"h1:5672": others, "h2:5672": others, "h3:5672": ada}, true},
		"all refuse":                          {map[string]map[string]string{"h1:5672": others, "h2:5672": others, "h3:5672": others}, false},
		"one refuses, others are unreachable": {map[string]map[string]string{"h1:5672": others}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order is random
				synctest.Test(t, func(t *testing.T) {
					h := hosts{}
					for addr, users := range tc.nodes {
						h.start(t, addr, users)
					}
					c, err := reprise.Dial(t.Context(), "amqp://ada:s3cret@h1,h2,h3", &reprise.Config{Dial: h.dial})
					if tc.ok {
						if err != nil {
							t.Fatal(err)
						}
						if err := c.Close(t.Context()); err != nil {
							t.Error(err)
						}
						return
					}
					e, ok := errors.AsType[*reprise.ConnectError](err)
					if !ok || h[e.Addr] == nil || !strings.Contains(err.Error(), `the broker refused user "ada"`) || strings.Contains(err.Error(), "s3cret") {
						t.Errorf("got %v, want rejection of user ada", err)
					}
				})
			}
		})
	}
}

// A host that does not respond delays Dial at most by the timeout of one attempt.
func TestDialTimesOutOnUnresponsiveHost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"amqp://guest:guest@hole":                              30 * time.Second,
		"amqp://guest:guest@hole,home":                         10 * time.Second,
		"amqp://guest:guest@hole,home?connection_timeout=2500": 2500 * time.Millisecond,
	} {
		t.Run(url, func(t *testing.T) {
			for range 5 { // the order is random
				synctest.Test(t, func(t *testing.T) {
					h := hosts{}
					h.start(t, "home:5672", nil)
					began, waited := time.Now(), time.Duration(0)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					c, err := reprise.Dial(ctx, url, &reprise.Config{
						Reconnect: backoff.Fixed(time.Hour),
						Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
							if addr != "hole:5672" {
								return h.dial(ctx, network, addr)
							}
							<-ctx.Done()
							waited = time.Since(began)
							if !strings.Contains(url, "home") {
								cancel()
							}
							return nil, context.Cause(ctx)
						},
					})
					if err == nil {
						_ = c.Close(t.Context())
					}
					if waited != 0 && waited != want {
						t.Errorf("backoff: got %v, want %v", waited, want)
					}
					if strings.Contains(url, "home") != (err == nil) {
						t.Errorf("Dial of %s: got error %v, want an error only if the URL does not contain the host home", url, err)
					}
				})
			}
		})
	}
}

// startEmbedded starts a broker and returns its address.
func startEmbedded(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(testkit.Embedded(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
