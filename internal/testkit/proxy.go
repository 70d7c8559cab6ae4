package testkit

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// A Direction is one of the two in which a connection carries bytes.
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

// A Proxy stands between a client and a broker, on a loopback port of its own,
// and passes everything on, until it is told to cut.
//
//	client ──ToServer──► Proxy ──► broker
//	       ◄──ToClient──       ◄──
//
// A cut ends all connections there are, as an unplugged cable would, but without
// the long wait for a timeout: both peers get what was passed on to them before,
// then the end of the stream. What the proxy had not passed on is lost. Clients
// may connect again at once, unless Refuse says otherwise.
//
// Where an exact place matters, arm a cut before the connection gets there, with
// CutAfterBytes, CutAfterFrame or CutBeforeFrame. They count from the call on,
// over all connections, and return a channel that is closed when the cut has
// happened and nothing passes any more. Each happens once.
//
// All methods may be called from any goroutine. The proxy ends with its test.
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

// NewProxy starts a proxy in front of target, the URL of a broker.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme == "amqps" {
		t.Fatalf("proxy: %q is no URL of a broker that speaks in the clear (%v)", target, err)
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

// URL is the target's, with the proxy's address for the target's.
func (p *Proxy) URL() string {
	u := *p.target
	u.Host = p.Addr()
	return u.String()
}

// Addr is the proxy's address, host and port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut cuts all connections. When it returns, nothing passes any more.
func (p *Proxy) Cut() {
	for _, c := range p.cancelAll() {
		<-c.stopped
	}
}

// Refuse lets no new connection through: it is closed as soon as it is made.
// Those that exist are not touched.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
}

// Resume lets all pass again: it undoes Refuse, and disarms every cut that has
// not happened. Their channels are never closed.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	p.armed = [2][]*cut{}
}

// CutAfterBytes cuts when n more bytes have passed in direction d. With 0 it cuts
// instead of passing on the next byte.
func (p *Proxy) CutAfterBytes(d Direction, n int64) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutAfterBytes, n, 0)
}

// CutAfterFrame cuts when the nth frame from now on has passed in direction d: the
// peer has all of that frame and nothing of the next. Heartbeats don't count, and
// a frame counts when it ends.
func (p *Proxy) CutAfterFrame(d Direction, n int) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutAfterFrame, int64(n), 1)
}

// CutBeforeFrame cuts instead of passing on the nth frame from now on in direction
// d: its sender has sent it, and the peer has all that came before and nothing of
// it. Heartbeats don't count, and a frame counts when it begins.
//
// CutBeforeFrame(ToClient, n) is how an answer gets lost: the server has done what
// was asked, and the client does not hear of it.
func (p *Proxy) CutBeforeFrame(d Direction, n int) <-chan struct{} {
	p.t.Helper()
	return p.arm(d, cutBeforeFrame, int64(n), 1)
}

// Frames is how many frames have passed in direction d, on all connections,
// heartbeats left out. A test that wants to cut at every boundary learns from it
// how many there are.
func (p *Proxy) Frames(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames[d]
}

// Accepted is how many connections have been let through so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// A cut is armed until it happens, which is when nothing is left to count.
type cut struct {
	place cutPlace
	left  int64 // bytes or frames
	done  chan struct{}
}

type cutPlace int

const (
	cutAfterBytes cutPlace = iota
	cutAfterFrame
	cutBeforeFrame
)

func (p *Proxy) arm(d Direction, place cutPlace, n, least int64) <-chan struct{} {
	p.t.Helper()
	if n < least {
		p.t.Fatalf("proxy: can't cut at %d: the first is %d", n, least)
	}
	c := &cut{place: place, left: n, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed[d] = append(p.armed[d], c)
	return c.done
}

// pass says how much of data may pass in direction d, and which cuts are to happen
// after that.
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

// count counts n for all cuts of a kind and says whether one is due.
func (p *Proxy) count(d Direction, place cutPlace, n int64) (due bool) {
	for _, c := range p.armed[d] {
		if c.place == place {
			c.left -= n
			due = due || c.left == 0
		}
	}
	return due
}

// happen lets armed cuts happen. It is called by what is to be cut, and so leaves
// the waiting to another.
func (p *Proxy) happen(now []*cut) {
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
