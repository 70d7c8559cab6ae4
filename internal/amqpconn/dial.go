package amqpconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/pemfile"
)

// minChannels is the number of channels that a connection needs: two for publishing, one for declarations and requests,
// and one bulkhead.
const minChannels = 4

// dial opens one connection. It returns a *ConnectError if another attempt at the same address cannot succeed.
func (l *Link) dial(ctx context.Context, a address) (*Conn, error) {
	timeout := l.addresses.timeout(a)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timed out after %s", timeout))
	defer cancel()

	a, err := l.withLogin(ctx, a)
	if err != nil {
		return nil, l.explain(a, nil, err)
	}
	l.setUser(a)
	plain, err := l.cfg.Dial(ctx, "tcp", a.addr)
	if err != nil {
		return nil, l.explain(a, nil, err)
	}
	used := &socket{Conn: plain}
	// The client's handshake does not accept a context. To abort it, dial closes the socket.
	abort := context.AfterFunc(ctx, func() { _ = plain.Close() })
	open := make(chan struct{})
	close(open)
	c := &Conn{
		addr: a.addr, log: l.log.With("broker", a.addr), tasks: l.tasks, socket: used, timeout: l.cfg.Timeout, login: a,
		lost: make(chan struct{}), blockings: make(chan blocking, 64), writable: open,
	}
	err = c.open(ctx, l, a, timeout)
	if !abort() {
		err = context.Cause(ctx) // ctx may have been canceled after the handshake
	}
	if err != nil {
		if c.raw != nil {
			c.raw.close(time.Now()) // stops the goroutines of the client
		}
		_ = plain.Close()
		return nil, l.explain(a, used, err)
	}
	if n := c.tuned.channelMax; n < minChannels {
		c.raw.close(time.Now().Add(timeout))
		return nil, &ConnectError{Addr: a.addr, Reason: fmt.Sprintf(
			"channel_max must be at least %d: got %d (raise channel_max in the URL or on the broker)", minChannels, n)}
	}

	l.gen++
	c.gen = l.gen
	c.extra = make(chan struct{}, min(maxExtraChannels, c.tuned.channelMax/2, c.tuned.channelMax-minChannels+1))
	used.watchWrites(c.Timeout(), func() (left time.Duration) {
		if left = c.leftToRead(c.Timeout()); left <= 0 || c.Closing() {
			c.GiveUp(c.Timeout())
		}
		return left
	})
	l.tasks.wg.Go(c.watch) // even after Close, because the connection closes next
	return c, nil
}

// product is the name of the client in the broker's list of connections.
const product = "Reprise"

// open adds TLS, if the URL requires it, and performs the handshakes.
func (c *Conn) open(ctx context.Context, l *Link, a address, timeout time.Duration) (err error) {
	if err := c.socket.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var transport net.Conn = c.socket
	if a.Scheme == "amqps" {
		settings, err := l.tlsConfig(a)
		if err != nil {
			return err
		}
		secured := tls.Client(c.socket, settings)
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		transport = secured
	}
	heartbeat := cmp.Or(l.cfg.Heartbeat, a.heartbeat)
	if a.amqp091 {
		c.raw, c.tuned, err = openAMQP091(transport, c.socket, a, l.name, heartbeat, c.blockedBy)
	} else {
		c.raw, c.tuned, err = openNative(transport, a, l.name, heartbeat, c.blockedBy)
	}
	return err
}

// tlsConfig returns the TLS settings for an address: LinkConfig.TLS, or the parameters of the URL.
func (l *Link) tlsConfig(a address) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName}
	if l.cfg.TLS != nil {
		settings = l.cfg.TLS.Clone() // a copy, because the next line sets the name of this address
	} else if err := readTLSFiles(settings, a); err != nil {
		return nil, &filesError{err}
	}
	settings.ServerName = cmp.Or(settings.ServerName, a.Host)
	return settings, nil
}

// CheckFiles returns an error if a file of the URL cannot be used.
func (a Addresses) CheckFiles() error {
	err := readTLSFiles(new(tls.Config), a[0]) // all addresses have the same files
	if path := a[0].passwordFile; err == nil && path != "" {
		_, err = readPassword(path)
	}
	if err != nil {
		return &filesError{err}
	}
	return nil
}

// readTLSFiles reads the certificates for each connection, because they may have been renewed.
func readTLSFiles(settings *tls.Config, a address) error {
	if a.CACertFile != "" {
		authorities, err := pemfile.Authorities(a.CACertFile)
		if err != nil {
			return err
		}
		settings.RootCAs = authorities
	}
	if a.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return fmt.Errorf("load client certificate: %w", err)
		}
		settings.Certificates = []tls.Certificate{certificate}
	}
	return nil
}
