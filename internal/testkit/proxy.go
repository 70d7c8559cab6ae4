package testkit

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// A Direction is a direction of a connection.
type Direction int

// The directions of a connection.
const (
	ToServer Direction = iota
	ToClient
)

func (d Direction) String() string {
	if d == ToServer {
		return "to the server"
	}
	return "to the client"
}

// A Proxy is a loopback proxy between a client and a broker. It forwards all data of a connection until a cut.
//
//	client ──ToServer──► Proxy ──► broker
//	       ◄──ToClient──       ◄──
//
// A cut closes all existing connections. Both peers receive the data that was already forwarded, and then EOF. All
// other data is lost, as with an unplugged cable. Clients may reconnect immediately, unless the test calls Refuse.
//
// To cut at an exact place, call CutAfterBytes, CutAfterFrame, CutBeforeFrame, CutInAck or CutInNack before the connection reaches it. These
// methods count from the call, over all connections. They return a channel that is closed when the cut is complete and
// the proxy no longer forwards data of the cut connections. Each cut happens once.
//
// All methods are safe for concurrent use. The proxy closes at the end of its test.
type Proxy struct {
	t      testing.TB
	target *url.URL
	ln     net.Listener
	ctx    context.Context
	wg     sync.WaitGroup // all goroutines

	mu       sync.Mutex // never held across I/O
	conns    map[*proxyConn]struct{}
	refusing bool
	accepted int
	armed    [2][]*cut
	frames   [2]int
}

// NewProxy starts a proxy for target, the URL of a broker.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme == "amqps" {
		t.Fatalf("proxy: target must be an AMQP URL without TLS: got %q (%v)", target, err)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "5672")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{t: t, target: u, ln: ln, ctx: ctx, conns: make(map[*proxyConn]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		cancel()
		p.wg.Wait()
	})
	return p
}

// URL returns the target's URL with the address of the proxy.
func (p *Proxy) URL() string {
	u := *p.target
	u.Host = p.Addr()
	return u.String()
}

// Addr returns the host:port of the proxy.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut cuts all connections. When it returns, the proxy no longer forwards data of these connections.
func (p *Proxy) Cut() {
	for _, c := range p.cancelAll() {
		<-c.stopped
	}
}

// Refuse makes the proxy close new connections immediately. It does not affect existing connections.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
}

// Resume reverts Refuse, and disarms every cut that has not happened. The channels of these cuts are never closed.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	p.armed = [2][]*cut{}
}

// CutAfterBytes cuts after n more bytes in direction d. If n is 0, it cuts before the next byte.
func (p *Proxy) CutAfterBytes(d Direction, n int64) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutAfterBytes, n, 0)
}

// CutAfterFrame cuts after the nth frame in direction d, counted from the call. The peer receives that whole frame and
// nothing after it. Heartbeats do not count. The proxy counts a frame at its end.
func (p *Proxy) CutAfterFrame(d Direction, n int) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutAfterFrame, int64(n), 1)
}

// CutBeforeFrame cuts before the nth frame in direction d, counted from the call. The sender has sent the frame. The
// peer receives all earlier data but no part of that frame. Heartbeats do not count. The proxy counts a frame at its
// start.
//
// CutBeforeFrame(ToClient, n) loses a response. The server has processed the request, but the client does not receive
// the response.
func (p *Proxy) CutBeforeFrame(d Direction, n int) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutBeforeFrame, int64(n), 1)
}

// CutInAck cuts in the first basic.ack that a client sends after the call, so that the broker does not receive the ack. Unlike
// CutBeforeFrame, it does not depend on other frames, such as the close of a channel that the client no longer uses.
func (p *Proxy) CutInAck() <-chan struct{} {
	p.t.Helper()
	return p.arm(ToServer, cutInAck, 1, 1)
}

// CutInNack is like CutInAck, for basic.nack.
func (p *Proxy) CutInNack() <-chan struct{} {
	p.t.Helper()
	return p.arm(ToServer, cutInNack, 1, 1)
}

// Frames returns the number of forwarded frames in direction d, on all connections, without heartbeats. A test that
// cuts at every boundary uses it to determine the number of boundaries.
func (p *Proxy) Frames(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames[d]
}

// Accepted returns the number of accepted connections.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// A cut is armed until its count reaches 0.
type cut struct {
	place cutPlace
	left  int64 // remaining bytes or frames
	done  chan struct{}
}

type cutPlace int

const (
	cutAfterBytes cutPlace = iota
	cutAfterFrame
	cutBeforeFrame
	cutInAck
	cutInNack
)

// methods are the places within a method frame.
var methods = map[[4]byte]cutPlace{basicAck: cutInAck, basicNack: cutInNack}

func (p *Proxy) arm(d Direction, place cutPlace, n, least int64) <-chan struct{} {
	p.t.Helper()
	if n < least {
		p.t.Fatalf("proxy: position of a cut must be at least %d: got %d", least, n)
	}
	c := &cut{place: place, left: n, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed[d] = append(p.armed[d], c)
	return c.done
}

// pass returns the number of bytes of data that may pass in direction d, and the cuts that are due after them.
func (p *Proxy) pass(d Direction, frames *frameScanner, data []byte) (n int, now []*cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := len(data)
	for _, c := range p.armed[d] {
		if c.place == cutAfterBytes {
			end = int(min(int64(end), c.left))
		}
	}
	for n < end {
		if frames.begins(data[n]) && p.count(d, cutBeforeFrame, 1) {
			break
		}
		size, ended := frames.next(data[n:end])
		n += size
		if place, found := methods[frames.method]; found && frames.read && p.count(d, place, 1) {
			break
		}
		if ended {
			p.frames[d]++
			if p.count(d, cutAfterFrame, 1) {
				break
			}
		}
	}
	p.count(d, cutAfterBytes, int64(n))
	p.armed[d] = slices.DeleteFunc(p.armed[d], func(c *cut) bool {
		if c.left == 0 {
			now = append(now, c)
		}
		return c.left == 0
	})
	return n, now
}

// count subtracts n from the remaining count of all cuts with the given direction and place, and reports whether a cut is
// due.
func (p *Proxy) count(d Direction, place cutPlace, n int64) (due bool) {
	for _, c := range p.armed[d] {
		if c.place == place {
			c.left -= n
			due = due || c.left == 0
		}
	}
	return due
}

// perform closes all connections for the cuts that are due. A new goroutine waits until they are closed, because
// perform runs on the goroutine of one of them.
func (p *Proxy) perform(now []*cut) {
	conns := p.cancelAll()
	p.wg.Go(func() {
		for _, conn := range conns {
			<-conn.stopped
		}
		for _, c := range now {
			close(c.done)
		}
	})
}

func (p *Proxy) cancelAll() []*proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*proxyConn
	for c := range p.conns {
		c.cancel()
		all = append(all, c)
	}
	return all
}
