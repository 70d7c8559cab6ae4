package testkit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A proxyConn is a client's connection together with the connection to the target. It forwards bytes until both sides have
// closed, or until it is canceled. The channel stopped is closed when the proxyConn no longer forwards bytes.
type proxyConn struct {
	proxy   *Proxy
	client  *net.TCPConn
	server  *net.TCPConn
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{}
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		if c := p.admit(client.(*net.TCPConn)); c != nil {
			p.wg.Go(c.run)
		} else {
			reset(client.(*net.TCPConn))
		}
	}
}

func (p *Proxy) admit(client *net.TCPConn) *proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		return nil
	}
	p.accepted++
	c := &proxyConn{proxy: p, client: client, stopped: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	p.conns[c] = struct{}{}
	return c
}

func (c *proxyConn) run() {
	defer func() {
		c.cancel()
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		delete(c.proxy.conns, c)
	}()
	var d net.Dialer
	server, err := d.DialContext(c.ctx, "tcp", c.proxy.target.Host)
	if err != nil {
		close(c.stopped)
		reset(c.client)
		return
	}
	c.server = server.(*net.TCPConn)
	defer c.client.Close()
	defer c.server.Close()

	c.runBoth(c.ctx,
		func() { c.forward(ToServer, c.server, c.client) },
		func() { c.forward(ToClient, c.client, c.server) })
	close(c.stopped)
	if c.ctx.Err() != nil {
		c.closeGracefully()
	}
}

// runBoth runs two functions concurrently. When ctx is canceled, it makes their reads and writes fail.
func (c *proxyConn) runBoth(ctx context.Context, one, other func()) {
	ended := make(chan struct{})
	var watch, work sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ended:
		case <-ctx.Done():
			c.deadline(time.Unix(1, 0))
		}
	})
	work.Go(one)
	work.Go(other)
	work.Wait()
	close(ended)
	watch.Wait()
}

func (c *proxyConn) deadline(t time.Time) {
	c.client.SetDeadline(t)
	c.server.SetDeadline(t)
}

// forward forwards bytes from src to dst until src returns EOF or c is canceled. As in TCP, EOF in one direction does
// not close the other direction.
func (c *proxyConn) forward(d Direction, dst, src *net.TCPConn) {
	var frames frameScanner
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if c.ctx.Err() != nil {
			return
		}
		if n > 0 {
			n, now := c.proxy.pass(d, &frames, buf[:n])
			if _, err := dst.Write(buf[:n]); err != nil {
				c.cancel()
			}
			if len(now) > 0 {
				c.proxy.perform(now)
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			dst.CloseWrite()
			return
		case err != nil:
			c.cancel()
			return
		}
	}
}

// closeGracefully closes both connections in such a way that the peers receive all forwarded data. An immediate close is
// not sufficient, because a close with unread bytes resets the connection, and the peer may lose data that it has not
// read. Therefore closeGracefully sends EOF to each peer, and discards further data until the peer closes or the timeout
// expires.
func (c *proxyConn) closeGracefully() {
	const timeout = 2 * time.Second
	c.deadline(time.Now().Add(timeout))
	c.runBoth(c.proxy.ctx, func() { drain(c.client) }, func() { drain(c.server) })
}

func drain(peer *net.TCPConn) {
	peer.CloseWrite()
	io.Copy(io.Discard, peer)
}

// reset closes a connection with a TCP reset, as if no program listened.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}
