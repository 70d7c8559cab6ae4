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

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/retry"
)

// DefaultHeartbeat is the interval of heartbeats if neither LinkConfig nor the URL sets it.
const DefaultHeartbeat = 10 * time.Second

// Timeouts for the TCP connect and the TLS and AMQP handshakes together. With several addresses the timeout is shorter,
// because another address is more likely to answer.
const (
	handshakeTimeout       = 30 * time.Second
	handshakeTimeoutOfMany = 10 * time.Second
)

// LinkConfig configures a Link. Logger, Dial and Reconnect must be set.
type LinkConfig struct {
	Name   string // connection_name in the broker's list
	Logger *slog.Logger
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS    *tls.Config
	// Credentials replaces the user and the password of the URL. May be nil.
	Credentials func(ctx context.Context) (user, password string, err error)
	Refresh     time.Duration // interval of refreshing the credentials; 0 means never, or DefaultRefresh with a password file
	Heartbeat   time.Duration // 0 means the value in the URL, or DefaultHeartbeat
	Timeout     time.Duration // for answers of the broker
	Reconnect   backoff.Backoff
	Observe     func(Change, error) // may be nil
}

// Change is a change of a link's state.
type Change int

// Changes of a link's state. Only Disconnected and Blocked come with an error, the reason.
const (
	Connected Change = iota
	Disconnected
	Blocked
	Unblocked
)

// CloseTimeout is the time for which a closing connection waits for the broker's answer.
const CloseTimeout = 5 * time.Second

// Link keeps one connection alive. It provides the current generation. If the connection is lost, the link tries
// indefinitely to replace it. One goroutine (Run) owns the link.
type Link struct {
	name  string // connection_name
	cfg   LinkConfig
	log   *slog.Logger
	tasks *Tasks

	sibling *Link         // the other connection of the client; nil: none
	wake    chan struct{} // receives a token when sibling has connected

	// Only the goroutine that dials uses these fields.
	addresses Rotation
	gen       uint64 // of the newest Conn

	mu      sync.Mutex
	current *Conn         // nil while disconnected
	user    string        // of the last attempt; "" if a certificate contains the name
	reason  error         // the reason if disconnected
	closed  error         // ErrClosed, or an error that wraps it; nil: not closed
	changed chan struct{} // closed and replaced on every change
}

// NewLink returns a link without a connection.
func NewLink(cfg LinkConfig, addresses Rotation, tasks *Tasks) *Link {
	return &Link{
		name: cfg.Name, cfg: cfg, log: cfg.Logger.With("connection", cfg.Name), tasks: tasks,
		addresses: addresses, changed: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// Sibling returns the other link of the same client. It starts with the address that l tried last. When one of the links has connected,
// the other one ends its delay after a failed attempt. Sibling must be called before Run.
func (l *Link) Sibling(cfg LinkConfig) *Link {
	s := NewLink(cfg, l.addresses.sibling(), l.tasks)
	l.sibling, s.sibling = s, l
	return s
}

// User returns the authenticated user, or "" if a certificate contains the name.
func (l *Link) User() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.user
}

// Connect dials until it succeeds or ctx is canceled. It returns a *ConnectError if it has tried all addresses and one of
// them has refused the connection, because further attempts cannot succeed.
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
		if ctx.Err() == nil || last == nil { // the error of a canceled attempt has less information
			last = named(a.addr, err)
		}
		if ctx.Err() == nil {
			delay := l.pause(try+1, -1)
			l.log.Warn("connect failed", "broker", a.addr, "reason", err, retry.Next(delay))
			if retry.Sleep(ctx, delay) == nil {
				continue
			}
		}
		return nil, fmt.Errorf("reprise: cannot reach %s: %w (last attempt: %s)", &l.addresses, context.Cause(ctx), strings.TrimPrefix(last.Error(), "reprise: "))
	}
}

// pause returns the delay before an attempt. The number try counts the attempts since the last connection or the start,
// from 1. The delay is 0 unless the attempt begins a round, which tries all addresses. It grows with the number of the
// round, to which pause adds the number before.
func (l *Link) pause(try, before int) time.Duration {
	round, begins := l.addresses.round(try)
	if !begins {
		return 0
	}
	return l.cfg.Reconnect.Delay(before + round)
}

// Run keeps the link connected until ctx is canceled, and then closes it. c is the first connection.
func (l *Link) Run(ctx context.Context, c *Conn) {
	defer l.set(nil, ErrClosed)
	for unsteady := 0; ; unsteady++ {
		began := time.Now()
		l.set(c, nil)
		if l.sibling != nil {
			select {
			case l.sibling.wake <- struct{}{}:
			default:
			}
		}
		c.log.Info("connected", "generation", c.gen)
		l.observe(Connected, nil)
		if !l.follow(ctx, c) {
			l.set(nil, ErrClosed)
			c.End(CloseTimeout)
			l.reportRemaining(c)
			l.observe(Disconnected, ErrClosed)
			return
		}
		l.set(nil, named(c.addr, c.reason))
		l.reportRemaining(c)
		l.observe(Disconnected, c.reason)
		if time.Since(began) >= retry.Steady {
			unsteady = 0
		}
		if c = l.reconnect(ctx, c, unsteady); c == nil {
			return
		}
	}
}

// follow reports the events of a connection. It returns true after the connection is lost, and false after ctx is canceled.
func (l *Link) follow(ctx context.Context, c *Conn) bool {
	if every := l.refreshes(c.login); every > 0 {
		connected, end := context.WithCancel(ctx)
		defer end()
		_ = l.tasks.Go(func() { l.refresh(connected, c, every) }) // fails only if the client is closed
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.lost:
			return true
		case b, ok := <-c.blockings:
			if !ok {
				return true
			}
			l.reportBlocking(c, b)
		}
	}
}

// reportRemaining reports the remaining events of a lost connection.
func (l *Link) reportRemaining(c *Conn) {
	for b := range c.blockings {
		l.reportBlocking(c, b)
	}
}

// reportBlocking reports that the broker has blocked or unblocked a connection.
func (l *Link) reportBlocking(c *Conn, b blocking) {
	if b.active {
		l.observe(Blocked, &BlockedError{Reason: b.reason})
		c.log.Warn("publishing blocked", "reason", b.reason)
		return
	}
	l.observe(Unblocked, nil)
	c.log.Info("publishing unblocked")
}

// reconnect dials until it succeeds. It returns nil if ctx is canceled. Unlike Connect it does not give up after a refusal,
// because credentials that worked before may work again, for example after the broker has imported its users. It gives up after
// MaxRefused if nothing can change the credentials. c is the lost connection. The number before counts the preceding
// connections that were lost soon after they had opened.
func (l *Link) reconnect(ctx context.Context, c *Conn, before int) *Conn {
	event, log, reason := "connection lost", c.log, c.reason
	var refused time.Time // time of the first of the refusals without another result in between
	for try := 1; ; try++ {
		delay := l.pause(try, before)
		log.Warn(event, "reason", reason, retry.Next(delay))
		if l.sleep(ctx, delay, try > 1) != nil {
			return nil
		}
		a := l.addresses.next()
		next, err := l.dial(ctx, a)
		if err == nil {
			return next
		}
		if !l.isFixed(a) || !isLoginRefused(err) {
			refused = time.Time{}
		} else if refused.IsZero() {
			refused = time.Now()
		} else if time.Since(refused) >= MaxRefused {
			err = fmt.Errorf("%w: the broker has refused the credentials of the URL for %s (correct them, and restart the program; passwordfile or Config.Credentials can change them without a restart): %w", ErrClosed, MaxRefused, err)
			l.log.Error("connection given up", "reason", err)
			l.set(nil, err)
			return nil
		}
		l.set(nil, named(a.addr, err))
		event, log, reason = "connect failed", l.log.With("broker", a.addr), err
	}
}

// sleep waits for d or, if failed is set, until the sibling connects. The delay after a connection that was lost soon does not end
// earlier, because two siblings could otherwise reconnect in turn without a delay.
func (l *Link) sleep(ctx context.Context, d time.Duration, failed bool) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	wake := l.wake
	if !failed {
		wake = nil
	}
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-l.wake: // the next attempt begins after the sibling has connected
	default:
	}
	return nil
}

// set stores the current connection, or the reason for its absence.
func (l *Link) set(c *Conn, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.reason = c, reason
	if l.closed == nil && errors.Is(reason, ErrClosed) {
		l.closed = reason
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) observe(change Change, err error) {
	if l.cfg.Observe != nil {
		l.cfg.Observe(change, err)
	}
}

// Get returns the connection. While the link is disconnected, Get waits, at most until ctx is canceled.
func (l *Link) Get(ctx context.Context) (*Conn, error) { return l.Within(ctx, nil) }

// Within is like Get, but returns ErrExpired if expired fires first.
func (l *Link) Within(ctx context.Context, expired <-chan time.Time) (*Conn, error) {
	for {
		l.mu.Lock()
		c, closed, changed := l.current, l.closed, l.changed
		l.mu.Unlock()
		switch {
		case closed != nil:
			return nil, closed
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

// Current returns the connection. Without a connection it returns ErrClosed, or ErrDisconnected with the reason.
func (l *Link) Current() (*Conn, error) {
	l.mu.Lock()
	c, reason, closed := l.current, l.reason, l.closed
	l.mu.Unlock()
	switch {
	case closed != nil:
		return nil, closed
	case c == nil:
		return nil, fmt.Errorf("%w: %w", ErrDisconnected, reason)
	case c.isLost():
		return nil, fmt.Errorf("%w: %w", ErrDisconnected, named(c.addr, c.reason))
	}
	return c, nil
}

// Trouble returns the reason why publishing is not possible at present, or nil. The reason is the error of Current or a
// *BlockedError.
func (l *Link) Trouble() error {
	c, err := l.Current()
	if err != nil {
		return err
	}
	return c.Blocked()
}

// named adds the address to an error that does not contain it.
func named(addr string, err error) error {
	if _, ok := errors.AsType[*ConnectError](err); ok {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}
