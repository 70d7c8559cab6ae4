package reprise

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// conn is one generation of a connection: it is lost once, and never comes
// back. What belongs to it (channels, deliveries, confirms) is lost with it,
// which is what fences acknowledgements: a delivery of one generation can only
// ever be settled on a channel of that generation. The AMQP client's own
// recovery revives channels behind the same pointers; it stays off
// (amqp.Config.Recovery is nil).
type conn struct {
	*amqp.Connection
	gen uint64 // from 1, per link

	lost   chan struct{} // closed when the connection is gone
	reason error         // why; valid once lost is closed

	socket     *socket
	unreadable bool // the AMQP client gave up over what it read; valid once lost is closed

	mu       sync.Mutex
	writable chan struct{} // closed unless the broker has blocked this connection
}

// watch follows the connection until it is gone.
//
// It logs nothing itself: a logger that is stuck would make the AMQP client drop
// the notification that publishing may go on.
func (c *conn) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking, noted chan<- amqp.Blocking) {
	defer close(noted)
	defer close(c.lost)
	for {
		select {
		case err, ok := <-closes:
			if ok {
				c.reason = err
				c.unreadable = !err.Server && !c.socket.failed.Load()
				continue // the channel is closed next
			}
			if c.reason == nil {
				c.reason = errGone
			}
			return
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			c.block(b.Active)
			select {
			case noted <- b:
			default: // the logger is stuck
			}
		}
	}
}

func (l *link) logBlocking(noted <-chan amqp.Blocking) {
	for b := range noted {
		if b.Active {
			l.log.Warn("publishing blocked", "reason", b.Reason)
		} else {
			l.log.Info("publishing unblocked")
		}
	}
}

func (c *conn) block(blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.writable:
		if blocked {
			c.writable = make(chan struct{})
		}
	default:
		if !blocked {
			close(c.writable)
		}
	}
}

// mayWrite returns a channel that is closed while the broker reads what is
// published.
func (c *conn) mayWrite() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writable
}

func (c *conn) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}

// choked reports whether the connection is lost because of something that the
// AMQP client could not read.
func (c *conn) choked() bool {
	if !c.IsClosed() {
		return false
	}
	<-c.lost // its channels end a little earlier
	return c.unreadable
}

// socket notes whether reading or writing has failed: a connection that ends
// without is ended by what was said on it.
type socket struct {
	net.Conn
	failed atomic.Bool
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) { return s.noted(s.Conn.Read(p)) }

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) { return s.noted(s.Conn.Write(p)) }

func (s *socket) noted(n int, err error) (int, error) {
	if err != nil {
		s.failed.Store(true)
	}
	return n, err
}

// end closes the connection, waiting for the broker's answer at most patience.
func (c *conn) end(patience time.Duration) {
	_ = c.CloseDeadline(time.Now().Add(patience)) // it is closed, whatever the error
	<-c.lost
}

// dial opens one connection. Errors that trying again cannot help are
// *ConnectError.
func (l *link) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()

	properties := amqp.NewConnectionProperties()
	properties["product"] = "Reprise"
	properties.SetClientConnectionName(l.name)
	config := amqp.Config{
		Heartbeat:  l.cfg.Heartbeat,
		Properties: properties,
		Recovery:   nil, // see conn
	}
	if l.cfg.TLS != nil {
		config.TLSClientConfig = l.cfg.TLS.Clone() // the client fills in ServerName
	}

	// The client's handshake knows no context: closing the socket ends it.
	abort := func() bool { return false }
	var used *socket
	config.Dial = func(network, addr string) (net.Conn, error) {
		plain, err := l.cfg.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := plain.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
		abort = context.AfterFunc(ctx, func() { _ = plain.Close() })
		used = &socket{Conn: plain}
		return used, nil
	}

	raw, err := amqp.DialConfig(l.url, config)
	live := abort()
	if err == nil && !live && ctx.Err() != nil {
		err = context.Cause(ctx) // aborted in the last moment
	}
	if err != nil {
		if raw != nil {
			_ = raw.CloseDeadline(time.Now()) // ends its goroutines
		}
		return nil, l.explain(err)
	}

	open := make(chan struct{})
	close(open)
	l.gen++
	c := &conn{Connection: raw, gen: l.gen, lost: make(chan struct{}), socket: used, writable: open}
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	blocks := raw.NotifyBlocked(make(chan amqp.Blocking, 64))
	noted := make(chan amqp.Blocking, 64)
	l.wg.Go(func() { c.watch(closes, blocks, noted) })
	l.wg.Go(func() { l.logBlocking(noted) })
	return c, nil
}

// explain turns what the broker or TLS says about a client it will never let in
// into a *ConnectError; other errors are returned as they are.
func (l *link) explain(err error) error {
	fatal := func(format string, args ...any) error {
		return &ConnectError{Addr: l.addr, Reason: fmt.Sprintf(format, args...), Err: err}
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fatal("the broker's TLS certificate is not trusted: %v", cert.Err)
	}
	refusal, ok := errors.AsType[*amqp.Error](err)
	switch {
	case !ok:
		return err
	case refusal == amqp.ErrSASL:
		return fatal("the broker offers no way to log in that this URL can use: check auth_mechanism")
	case refusal == amqp.ErrCredentials:
		// The client's guess: RabbitMQ hangs up on a wrong password without a
		// word, but so does a broken network.
		return &refusedError{fatal("the broker refused user %q: check user name and password (and note that RabbitMQ lets user guest in from localhost only)", l.user)}
	case refusal.Code == amqp.AccessRefused && refusal.Server:
		return fatal("the broker refused user %q: check user name and password (%s)", l.user, refusal.Reason)
	case refusal.Code == amqp.NotAllowed && refusal.Server:
		return fatal("the broker does not let user %q into virtual host %q: check that it exists and that the user has permissions on it (%s)", l.user, l.vhost, refusal.Reason)
	}
	return err
}

// refusedError is a refusal that is only inferred. It is believed when it
// happens twice in a row.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// parseURL checks the URL and returns its parts. The password never appears in
// an error.
func parseURL(url string) (amqp.URI, error) {
	uri, err := amqp.ParseURI(url)
	if err == nil {
		return uri, nil
	}
	reason := err.Error()
	for e := err; e != nil; e = errors.Unwrap(e) {
		reason = e.Error() // the innermost does not quote the URL
	}
	if strings.Contains(reason, "@") {
		reason = "malformed"
	}
	return amqp.URI{}, &ConnectError{Reason: fmt.Sprintf("cannot use this broker URL (%s): write amqp://user:password@host:5672/vhost, with special characters percent-encoded", reason)}
}
