package amqpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/retry"
)

// DefaultHeartbeat is the interval of heartbeats where neither LinkConfig nor the URL has one.
const DefaultHeartbeat = 10 * time.Second

// These bound connecting, TLS and the AMQP handshake together. With several addresses, the
// next one is worth more than a longer wait.
const (
	handshakeTimeout       = 30 * time.Second
	handshakeTimeoutOfMany = 10 * time.Second
)

// LinkConfig configures a Link. Logger, Dial and Reconnect must be set.
type LinkConfig struct {
	Name      string // connection_name in the broker's list
	Logger    *slog.Logger
	Dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS       *tls.Config
	Heartbeat time.Duration // 0: the URL's, or DefaultHeartbeat
	Timeout   time.Duration // for answers of the broker
	Reconnect backoff.Backoff
	Observe   func(Change, error) // may be nil
}

// Change is a change of a link's state.
type Change int

// Changes of a link's state. Disconnected and Blocked come with the reason.
const (
	Connected Change = iota
	Disconnected
	Blocked
	Unblocked
)

// CloseTimeout is how long a closing connection waits for the broker's answer.
const CloseTimeout = 5 * time.Second

// Link keeps one connection alive: it hands out the current generation and replaces it,
// indefinitely, when it is lost. One goroutine (Run) owns it.
type Link struct {
	name  string // connection_name
	user  string // authenticated as, "" where not known
	cfg   LinkConfig
	log   *slog.Logger
	tasks *Tasks

	// Only the goroutine that dials uses these.
	addresses Rotation
	gen       uint64 // of the newest Conn

	mu      sync.Mutex
	current *Conn // nil while disconnected
	why     error // it is disconnected
	closed  bool
	changed chan struct{} // closed and replaced with every change
}

// NewLink returns a link that has no connection yet.
func NewLink(cfg LinkConfig, addresses Rotation, tasks *Tasks) *Link {
	return &Link{
		name: cfg.Name, user: addresses.all[0].login(),
		cfg: cfg, log: cfg.Logger.With("connection", cfg.Name), tasks: tasks,
		addresses: addresses, changed: make(chan struct{}),
	}
}

// Beside returns the rotation for another link of the same client, which begins with the
// address that was tried last.
func (l *Link) Beside() Rotation { return l.addresses.beside() }

// User is the authenticated user, "" where a certificate names it.
func (l *Link) User() string { return l.user }

// Connect dials until it succeeds, ctx ends, or trying again cannot help: every
// address was tried, and one refused us.
func (l *Link) Connect(ctx context.Context) (*Conn, error) {
	var refused, last error
	for try := 1; ; try++ {
		a := l.addresses.next()
		c, err := l.dial(ctx, a)
		if err == nil {
			l.set(c, nil)
			return c, nil
		}
		if refusal := l.addresses.refusal(err); refused == nil {
			refused = refusal
		}
		if _, begins := l.addresses.round(try + 1); begins && refused != nil {
			return nil, refused
		}
		if ctx.Err() == nil || last == nil { // a try that ctx has cut short knows no better
			last = named(a.addr, err)
		}
		if ctx.Err() == nil {
			delay := l.pause(try+1, -1)
			l.log.Warn("connect failed", "broker", a.addr, "reason", err, retry.Next(delay))
			if retry.Sleep(ctx, delay) == nil {
				continue
			}
		}
		return nil, fmt.Errorf("reprise: %s cannot be reached: %w (last try: %s)", &l.addresses, context.Cause(ctx), strings.TrimPrefix(last.Error(), "reprise: "))
	}
}

// pause is how long to wait before the nth try since there was a connection, or
// since the beginning. Only when all addresses have been tried does it wait, and
// longer each time; so it does after further failures before those.
func (l *Link) pause(try, before int) time.Duration {
	round, begins := l.addresses.round(try)
	if !begins {
		return 0
	}
	return l.cfg.Reconnect.Delay(before + round)
}

// Run keeps the link connected until ctx ends, and then closes it. c is the
// first connection.
func (l *Link) Run(ctx context.Context, c *Conn) {
	defer l.set(nil, ErrClosed)
	for unsteady := 0; ; unsteady++ {
		began := time.Now()
		l.set(c, nil)
		c.log.Info("connected", "generation", c.gen)
		l.observe(Connected, nil)
		if !l.follow(ctx, c) {
			l.set(nil, ErrClosed)
			c.End(CloseTimeout)
			l.tellAll(c)
			l.observe(Disconnected, ErrClosed)
			return
		}
		l.set(nil, named(c.addr, c.reason))
		l.tellAll(c)
		l.observe(Disconnected, c.reason)
		if time.Since(began) >= retry.Steady {
			unsteady = 0
		}
		if c = l.reconnect(ctx, c, unsteady); c == nil {
			return
		}
	}
}

// follow tells of a connection until it is lost, or until ctx ends: then it returns
// false.
func (l *Link) follow(ctx context.Context, c *Conn) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.lost:
			return true
		case b, ok := <-c.noted:
			if !ok {
				return true
			}
			l.tell(c, b)
		}
	}
}

// tellAll tells what is left to tell of a connection that is lost.
func (l *Link) tellAll(c *Conn) {
	for b := range c.noted {
		l.tell(c, b)
	}
}

// tell says that the broker has blocked a connection, or unblocked it.
func (l *Link) tell(c *Conn, b amqp.Blocking) {
	if b.Active {
		l.observe(Blocked, &BlockedError{Reason: b.Reason})
		c.log.Warn("publishing blocked", "reason", b.Reason)
		return
	}
	l.observe(Unblocked, nil)
	c.log.Info("publishing unblocked")
}

// reconnect dials until it succeeds; nil means that ctx ended. Unlike connect
// it never gives up: credentials that worked before may work again. c is the
// connection that was lost, after a number of others that did not last.
func (l *Link) reconnect(ctx context.Context, c *Conn, before int) *Conn {
	event, log, reason := "connection lost", c.log, c.reason
	for try := 1; ; try++ {
		delay := l.pause(try, before)
		log.Warn(event, "reason", reason, retry.Next(delay))
		if retry.Sleep(ctx, delay) != nil {
			return nil
		}
		a := l.addresses.next()
		next, err := l.dial(ctx, a)
		if err == nil {
			return next
		}
		l.set(nil, named(a.addr, err))
		event, log, reason = "connect failed", l.log.With("broker", a.addr), err
	}
}

// set notes the present connection, or why there is none.
func (l *Link) set(c *Conn, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.why = c, why
	l.closed = l.closed || why == ErrClosed
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) observe(change Change, err error) {
	if l.cfg.Observe != nil {
		l.cfg.Observe(change, err)
	}
}

// Get returns the connection, waiting for one until ctx ends.
func (l *Link) Get(ctx context.Context) (*Conn, error) { return l.Within(ctx, nil) }

// Within is Get that gives up with ErrExpired.
func (l *Link) Within(ctx context.Context, expired <-chan time.Time) (*Conn, error) {
	for {
		l.mu.Lock()
		c, closed, changed := l.current, l.closed, l.changed
		l.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case c != nil && !c.isLost():
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-expired:
			return nil, ErrExpired
		}
	}
}

// Current returns the connection if there is one, else ErrClosed, or
// ErrDisconnected with the reason.
func (l *Link) Current() (*Conn, error) {
	l.mu.Lock()
	c, why, closed := l.current, l.why, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case c == nil:
		return nil, fmt.Errorf("%w: %w", ErrDisconnected, why)
	case c.isLost():
		return nil, fmt.Errorf("%w: %w", ErrDisconnected, named(c.addr, c.reason))
	}
	return c, nil
}

// Trouble returns why nothing can be sent at present: the error of Current, or that the
// broker has blocked the connection.
func (l *Link) Trouble() error {
	c, err := l.Current()
	if err != nil {
		return err
	}
	return c.Blocked()
}

// named says where an error came from, unless it says so itself.
func named(addr string, err error) error {
	if _, ok := errors.AsType[*ConnectError](err); ok {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}
