package reprise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closePatience is how long a closing connection waits for the broker's answer.
const closePatience = 5 * time.Second

// link keeps one connection alive: it hands out the current generation and
// replaces it, for ever, when it is lost. One goroutine (run) owns it.
type link struct {
	role string // "publish" or "consume"
	name string // connection_name
	user string // authenticated as, "" where not known
	cfg  Config
	log  *slog.Logger
	wg   *sync.WaitGroup

	// Only whoever dials, never two at a time, uses these.
	addresses rotation
	gen       uint64 // of the newest conn

	mu      sync.Mutex
	current *conn // nil while disconnected
	why     error // it is disconnected
	closed  bool
	changed chan struct{} // closed and replaced with every change
}

func newLink(role string, addresses rotation, cfg Config, wg *sync.WaitGroup) *link {
	name := cfg.Name + " " + role
	return &link{
		role: role, name: name, user: addresses.all[0].login(),
		cfg: cfg, log: cfg.Logger.With("connection", name), wg: wg,
		addresses: addresses, changed: make(chan struct{}),
	}
}

// connect dials until it succeeds, ctx ends, or trying again cannot help: every
// address was tried, and one refused us.
func (l *link) connect(ctx context.Context) (*conn, error) {
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
			l.log.Warn("connect failed", "broker", a.addr, "reason", err, nextTry(delay))
			if sleep(ctx, delay) == nil {
				continue
			}
		}
		return nil, fmt.Errorf("reprise: %s cannot be reached: %w (last try: %s)", &l.addresses, context.Cause(ctx), strings.TrimPrefix(last.Error(), "reprise: "))
	}
}

// pause is how long to wait before the nth try since there was a connection, or
// since the beginning. Only when all addresses have been tried does it wait, and
// longer each time; so it does after further failures before those.
func (l *link) pause(try, before int) time.Duration {
	round, begins := l.addresses.round(try)
	if !begins {
		return 0
	}
	return l.cfg.Reconnect.Delay(before + round)
}

// run keeps the link connected until ctx ends, and then closes it. c is the
// first connection.
func (l *link) run(ctx context.Context, c *conn) {
	defer l.set(nil, ErrClosed)
	for unsteady := 0; ; unsteady++ {
		began := time.Now()
		l.set(c, nil)
		c.log.Info("connected", "generation", c.gen)
		l.observe(EventConnected, nil)
		if !l.follow(ctx, c) {
			l.set(nil, ErrClosed)
			c.end(closePatience)
			l.tellAll(c)
			l.observe(EventDisconnected, ErrClosed)
			return
		}
		l.set(nil, named(c.addr, c.reason))
		l.tellAll(c)
		l.observe(EventDisconnected, c.reason)
		if time.Since(began) >= steady {
			unsteady = 0
		}
		if c = l.reconnect(ctx, c, unsteady); c == nil {
			return
		}
	}
}

// follow tells of a connection until it is lost, or until ctx ends: then it returns
// false.
func (l *link) follow(ctx context.Context, c *conn) bool {
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
func (l *link) tellAll(c *conn) {
	for b := range c.noted {
		l.tell(c, b)
	}
}

// tell says that the broker has blocked a connection, or unblocked it.
func (l *link) tell(c *conn, b amqp.Blocking) {
	if b.Active {
		l.observe(EventBlocked, &BlockedError{Reason: b.Reason})
		c.log.Warn("publishing blocked", "reason", b.Reason)
		return
	}
	l.observe(EventUnblocked, nil)
	c.log.Info("publishing unblocked")
}

// reconnect dials until it succeeds; nil means that ctx ended. Unlike connect
// it never gives up: credentials that worked before may work again. c is the
// connection that was lost, after a number of others that did not last.
func (l *link) reconnect(ctx context.Context, c *conn, before int) *conn {
	event, log, reason := "connection lost", c.log, c.reason
	for try := 1; ; try++ {
		delay := l.pause(try, before)
		log.Warn(event, "reason", reason, nextTry(delay))
		if sleep(ctx, delay) != nil {
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
func (l *link) set(c *conn, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.why = c, why
	l.closed = l.closed || why == ErrClosed
	close(l.changed)
	l.changed = make(chan struct{})
}

// observe tells the observer, if there is one.
func (l *link) observe(kind EventKind, err error) {
	if o := l.cfg.Observer; o != nil {
		o.Observe(Event{Kind: kind, Connection: l.role, Err: err})
	}
}

// get returns the connection, waiting for one until ctx ends.
func (l *link) get(ctx context.Context) (*conn, error) { return l.within(ctx, nil) }

var errExpired = errors.New("reprise: no connection in time")

// within is get that gives up with errExpired.
func (l *link) within(ctx context.Context, expired <-chan time.Time) (*conn, error) {
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
			return nil, errExpired
		}
	}
}

// standing returns the connection if there is one, else ErrClosed, or
// ErrDisconnected with the reason.
func (l *link) standing() (*conn, error) {
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

// trouble says why nothing can be sent at present: as standing does, or that the
// broker has blocked the connection.
func (l *link) trouble() error {
	c, err := l.standing()
	if err != nil {
		return err
	}
	return c.blocking()
}

// named says where an error came from, unless it says so itself.
func named(addr string, err error) error {
	if _, ok := errors.AsType[*ConnectError](err); ok {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}
