package pgtest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy is a loopback proxy between a client and a PostgreSQL server. After Hold it accepts connections but does not
// forward data, like a server that does not respond or a network that drops packets. It closes at the end of its test.
type Proxy struct {
	URL string

	ln     net.Listener
	target *pgconn.Config
	wg     sync.WaitGroup

	mu       sync.Mutex
	held     chan struct{} // closed unless held
	conns    map[net.Conn]bool
	refusing bool
}

// NewProxy starts a proxy to the PostgreSQL server at a URL.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	target, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = ln.Addr().String()
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p := &Proxy{URL: u.String(), ln: ln, target: target, held: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.held)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.Resume()
		p.Refuse()
		p.wg.Wait()
	})
	return p
}

// Hold stops forwarding in both directions.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

// Refuse closes all connections. It also closes new connections immediately, like a stopped server.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Resume undoes Hold and Refuse. The proxy then forwards the held data. Connections that Refuse closed stay closed.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	select {
	case <-p.held:
	default:
		close(p.held)
	}
}

// wait waits until the proxy is not held.
func (p *Proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	<-held
}

func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.refusing
}

func (p *Proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.remove(client)
	if !p.add(client) {
		return
	}
	p.wait()
	network, address := pgconn.NetworkAddress(p.target.Host, p.target.Port)
	var d net.Dialer
	server, err := d.DialContext(context.Background(), network, address)
	if err != nil {
		return
	}
	defer p.remove(server)
	if !p.add(server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		both.Go(func() {
			defer way[0].Close()
			p.pass(way[0], way[1])
		})
	}
	both.Wait()
}

func (p *Proxy) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.wait()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
