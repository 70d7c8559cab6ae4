package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const timeout = 2 * time.Minute

func TestProxyForwardsAllData(t *testing.T) {
	s := newEcho(t)
	p := NewProxy(t, s.url())
	c := dial(t, p)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // larger than all buffers on the way
	var wg sync.WaitGroup
	wg.Go(func() {
		c.Write(sent)
		c.CloseWrite()
	})
	if got := readAll(t, c); got != string(sent) {
		t.Errorf("got %d bytes, want %d", len(got), len(sent))
	}
	wg.Wait()
}

func TestProxyURL(t *testing.T) {
	p := NewProxy(t, "amqp://user:secret@127.0.0.1/vhost?heartbeat=5")
	if want := "amqp://user:secret@" + p.Addr() + "/vhost?heartbeat=5"; p.URL() != want {
		t.Errorf("URL: got %s, want %s", p.URL(), want)
	}
	if want := "127.0.0.1:5672"; p.target.Host != want {
		t.Errorf("target: got %s, want %s", p.target.Host, want)
	}
}

func TestProxyCut(t *testing.T) {
	s := newEcho(t)
	p := NewProxy(t, s.url())
	a, b := dial(t, p), dial(t, p)
	for _, c := range []*net.TCPConn{a, b} {
		write(t, c, "ping")
		read(t, c, "ping")
	}
	p.Cut()
	a.Write([]byte("lost")) // this write may already fail
	for _, c := range []*net.TCPConn{a, b} {
		if rest := readAll(t, c); rest != "" {
			t.Errorf("client: got %q after the cut, want no data", rest)
		}
	}
	if got := s.received(t, 2); got[0] != "ping" || got[1] != "ping" {
		t.Errorf("server: got %q, want ping twice", got)
	}

	again := dial(t, p)
	write(t, again, "pong")
	read(t, again, "pong")
	if n := p.Accepted(); n != 3 {
		t.Errorf("got %d accepted connections, want 3", n)
	}
}

// A peer that does not read blocks the proxy in a write, but does not prevent a cut.
func TestProxyCutWhileStuck(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := NewProxy(t, "tcp://"+ln.Addr().String())
	c := dial(t, p)
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })

	var sent int
	chunk := make([]byte, 64<<10)
	for {
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := c.Write(chunk)
		sent += n
		if err != nil {
			break
		}
	}
	c.CloseWrite()
	p.Cut()
	server.SetDeadline(time.Now().Add(timeout))
	got, err := io.Copy(io.Discard, server)
	if err != nil || got >= int64(sent) {
		t.Errorf("received bytes: got %d, %v; want fewer than %d", got, err, sent)
	}
}

func TestProxyRefuseAndResume(t *testing.T) {
	s := newEcho(t)
	p := NewProxy(t, s.url())
	old := dial(t, p)
	write(t, old, "a")
	read(t, old, "a")

	p.Refuse()
	refused(t, p)
	write(t, old, "b") // this connection still works
	read(t, old, "b")

	p.Resume()
	c := dial(t, p)
	write(t, c, "c")
	read(t, c, "c")
	if n := p.Accepted(); n != 2 {
		t.Errorf("got %d accepted connections, want 2", n)
	}
}

func TestProxyResumeDisarmsCuts(t *testing.T) {
	p := NewProxy(t, newEcho(t).url())
	cut := p.CutAfterBytes(ToServer, 2)
	p.Resume()
	c := dial(t, p)
	write(t, c, "abcd")
	read(t, c, "abcd")
	select {
	case <-cut:
		t.Error("proxy performed a cut after Resume")
	default:
	}
}

func TestProxyWithoutTarget(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // no server listens on the port
	refused(t, NewProxy(t, "tcp://"+ln.Addr().String()))
}

// refused tries to connect. The refusal may occur before or after Dial returns.
func refused(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(timeout))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection was not refused: read %d bytes (%v)", n, err)
	}
}

func TestProxyCutAfterBytes(t *testing.T) {
	for _, n := range []int64{0, 1, 5, 9} {
		t.Run(fmt.Sprint("to the server ", n), func(t *testing.T) {
			s := newEcho(t)
			p := NewProxy(t, s.url())
			cut := p.CutAfterBytes(ToServer, n)
			c := dial(t, p)
			write(t, c, "0123456789")
			wait(t, cut)
			if got, want := s.received(t, 1)[0], "0123456789"[:n]; got != want {
				t.Errorf("server received %q, want %q", got, want)
			}
		})
		t.Run(fmt.Sprint("to the client ", n), func(t *testing.T) {
			s := newEcho(t)
			p := NewProxy(t, s.url())
			cut := p.CutAfterBytes(ToClient, n)
			c := dial(t, p)
			write(t, c, "0123456789")
			wait(t, cut)
			if got, want := readAll(t, c), "0123456789"[:n]; got != want {
				t.Errorf("client received %q, want %q", got, want)
			}
			if got := s.received(t, 1)[0]; got != "0123456789" {
				t.Errorf("server: got %q, want 0123456789", got)
			}
		})
	}
}

func TestProxyCutAtFrame(t *testing.T) {
	frames := []string{frame(1, 12), frame(1, 0), frame(3, 5000), frame(1, 9)}
	stream := protocolHeader
	ends := []int{len(stream)}
	for _, f := range frames {
		stream += frame(frameHeartbeat, 0) + f
		ends = append(ends, len(stream))
	}
	heartbeat := len(frame(frameHeartbeat, 0))

	for _, d := range []Direction{ToServer, ToClient} {
		for i := 1; i <= len(frames); i++ {
			received := func(t *testing.T, arm func(p *Proxy) <-chan struct{}) string {
				s := newEcho(t)
				p := NewProxy(t, s.url())
				cut := arm(p)
				c := dial(t, p)
				write(t, c, stream)
				wait(t, cut)
				client, server := readAll(t, c), s.received(t, 1)[0]
				if d == ToServer {
					return server
				}
				if server != stream {
					t.Errorf("server must receive the whole stream: got %d bytes, want %d", len(server), len(stream))
				}
				return client
			}
			t.Run(fmt.Sprint("after ", i, " ", d), func(t *testing.T) {
				got := received(t, func(p *Proxy) <-chan struct{} { return p.CutAfterFrame(d, i) })
				if want := stream[:ends[i]]; got != want {
					t.Errorf("got %d bytes, want %d", len(got), len(want))
				}
			})
			t.Run(fmt.Sprint("before ", i, " ", d), func(t *testing.T) {
				got := received(t, func(p *Proxy) <-chan struct{} { return p.CutBeforeFrame(d, i) })
				if want := stream[:ends[i-1]+heartbeat]; got != want {
					t.Errorf("got %d bytes, want %d", len(got), len(want))
				}
			})
		}
	}
}

// A count starts when the cut is armed, and continues across connections.
func TestProxyCountsFramesFromCall(t *testing.T) {
	s := newEcho(t)
	p := NewProxy(t, s.url())
	a := dial(t, p)
	write(t, a, frame(1, 3)+frame(1, 3))
	read(t, a, frame(1, 3)+frame(1, 3))
	if n := p.Frames(ToServer); n != 2 {
		t.Errorf("got %d frames, want 2", n)
	}

	cut := p.CutAfterFrame(ToServer, 2)
	other := p.CutBeforeFrame(ToServer, 3) // no third frame is sent
	write(t, a, frame(1, 3))
	read(t, a, frame(1, 3))
	b := dial(t, p)
	write(t, b, frame(1, 7))
	wait(t, cut)
	readAll(t, a)
	readAll(t, b)
	if n := p.Frames(ToServer); n != 4 {
		t.Errorf("got %d frames, want 4", n)
	}
	select {
	case <-other:
		t.Error("proxy performed the cut before frame 3, want no cut")
	default:
	}
}

func TestProxyPerformsTwoCutsAtOnePosition(t *testing.T) {
	p := NewProxy(t, newEcho(t).url())
	cuts := []<-chan struct{}{
		p.CutAfterBytes(ToServer, int64(len(frame(1, 3)))),
		p.CutAfterFrame(ToServer, 1),
		p.CutAfterFrame(ToServer, 1),
	}
	c := dial(t, p)
	write(t, c, frame(1, 3))
	for _, cut := range cuts {
		wait(t, cut)
	}
}

func TestProxyRejectsInvalidPosition(t *testing.T) {
	p := NewProxy(t, newEcho(t).url())
	for name, arm := range map[string]func(p *Proxy) <-chan struct{}{
		"frame 0": func(p *Proxy) <-chan struct{} { return p.CutAfterFrame(ToServer, 0) },
		"byte -1": func(p *Proxy) <-chan struct{} { return p.CutAfterBytes(ToServer, -1) },
	} {
		got := outcome(t, func(t testing.TB) {
			arm(&Proxy{t: t})
		})
		if !strings.Contains(got.fatal, "must be at least") {
			t.Errorf("%s: got failure %q, want must be at least", name, got.fatal)
		}
	}
	p.Cut() // without connections
}

// An echo server returns and records the received data.
type echo struct {
	ln   net.Listener
	done chan string // the received data of each ended connection
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &echo{ln: ln, done: make(chan string, 16)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				var got bytes.Buffer
				io.Copy(c, io.TeeReader(c, &got))
				io.Copy(&got, c) // the write to the client may fail
				s.done <- got.String()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return s
}

func (s *echo) url() string { return "tcp://" + s.ln.Addr().String() }

// received returns the data that n connections have received.
func (s *echo) received(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		select {
		case got := <-s.done:
			all = append(all, got)
		case <-time.After(timeout):
			t.Fatal("connection of the server did not end")
		}
	}
	return all
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(timeout))
	return c.(*net.TCPConn)
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, want %q (%v)", got, want, err)
	}
}

// readAll reads until the end of the stream, and closes the connection.
func readAll(t *testing.T, c *net.TCPConn) string {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	return string(got)
}

func wait(t *testing.T, cut <-chan struct{}) {
	t.Helper()
	select {
	case <-cut:
	case <-time.After(timeout):
		t.Fatal("proxy did not perform the cut")
	}
}
