package amqpconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

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
	properties := amqp.NewConnectionProperties()
	properties["product"] = "Reprise"
	properties.SetClientConnectionName(l.name)
	config := amqp.Config{
		SASL:       a.mechanisms(),
		Vhost:      a.Vhost,
		ChannelMax: a.ChannelMax,
		FrameSize:  maxFrame,
		Heartbeat:  cmp.Or(l.cfg.Heartbeat, a.heartbeat),
		Properties: properties,
		Locale:     "en_US",
		Recovery:   nil, // see Conn
	}
	plain, err := l.cfg.Dial(ctx, "tcp", a.addr)
	if err != nil {
		return nil, l.explain(a, nil, err)
	}
	used := &socket{Conn: plain}
	// The client's handshake does not accept a context. To abort it, dial closes the socket.
	abort := context.AfterFunc(ctx, func() { _ = plain.Close() })
	raw, err := l.open(ctx, a, used, config, timeout)
	if !abort() {
		err = context.Cause(ctx) // ctx may have been canceled after the handshake
	}
	if err != nil {
		if raw != nil {
			_ = raw.CloseDeadline(time.Now()) // stops the goroutines of the client
		}
		_ = plain.Close()
		return nil, l.explain(a, used, err)
	}

	if n := raw.Config.ChannelMax; n < minChannels {
		_ = raw.CloseDeadline(time.Now().Add(timeout))
		return nil, &ConnectError{Addr: a.addr, Reason: fmt.Sprintf(
			"channel_max must be at least %d: got %d (raise channel_max in the URL or on the broker)", minChannels, n)}
	}

	open := make(chan struct{})
	close(open)
	l.gen++
	c := &Conn{
		raw: raw, frameSize: raw.Config.FrameSize, gen: l.gen, addr: a.addr, log: l.log.With("broker", a.addr), tasks: l.tasks, socket: used, timeout: l.cfg.Timeout, login: a,
		lost: make(chan struct{}), blockings: make(chan amqp.Blocking, 64), writable: open,
		extra: make(chan struct{}, min(maxExtraChannels, raw.Config.ChannelMax/2, raw.Config.ChannelMax-minChannels+1)),
	}
	used.watchWrites(c.Timeout(), func() (left time.Duration) {
		if left = c.leftToRead(c.Timeout()); left <= 0 || c.Closing() {
			c.GiveUp(c.Timeout())
		}
		return left
	})
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	blocks := raw.NotifyBlocked(make(chan amqp.Blocking, 64))
	l.tasks.wg.Go(func() { c.watch(closes, blocks) }) // even after Close, because the connection closes next
	return c, nil
}

// open adds TLS, if the URL requires it, and performs the handshakes.
func (l *Link) open(ctx context.Context, a address, s *socket, config amqp.Config, timeout time.Duration) (*amqp.Connection, error) {
	if err := s.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var transport net.Conn = s
	if a.Scheme == "amqps" {
		settings, err := l.tlsConfig(a)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(s, settings)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		transport = secured
	}
	filtered := newFilter(transport)
	raw, err := amqp.Open(filtered, config)
	if err == nil {
		filtered.max.Store(int32(raw.Config.FrameSize)) // before the first content header
	}
	return raw, err
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
