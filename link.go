package reprise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/backoff"
)

// steady is how long a connection or channel must have lasted for the next
// failure to count as the first: shorter-lived ones are reopened with growing
// delays, so that a broker which drops us at once is not hammered.
const steady = 30 * time.Second

// closePatience is how long a closing connection waits for the broker's answer.
const closePatience = 5 * time.Second

// link keeps one connection alive: it hands out the current generation and
// replaces it, for ever, when it is lost. One goroutine (run) owns it.
type link struct {
	name  string // connection_name
	url   string
	addr  string // host:port, for people
	user  string // authenticated as, "" where not known
	vhost string
	cfg   Config
	log   *slog.Logger
	wg    *sync.WaitGroup
	gen   uint64 // of the newest conn; only dial, never concurrent, uses it

	mu      sync.Mutex
	current *conn // nil while disconnected
	closed  bool
	changed chan struct{} // closed and replaced with every change
}

func newLink(role, url string, uri amqp.URI, cfg Config, wg *sync.WaitGroup) *link {
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	name := cfg.Name + " " + role
	user := uri.Username
	if slices.ContainsFunc(uri.AuthMechanism, func(m string) bool { return strings.EqualFold(m, "EXTERNAL") }) {
		user = "" // the broker takes the name from the certificate
	}
	return &link{
		name: name, url: url, addr: addr, user: user, vhost: uri.Vhost,
		cfg: cfg, log: cfg.Logger.With("connection", name, "broker", addr), wg: wg,
		changed: make(chan struct{}),
	}
}

// connect dials until it succeeds, ctx ends, or trying again cannot help.
func (l *link) connect(ctx context.Context) (*conn, error) {
	refusals := 0
	for attempt := 1; ; attempt++ {
		c, err := l.dial(ctx)
		if err == nil {
			return c, nil
		}
		if _, inferred := errors.AsType[*refusedError](err); inferred {
			refusals++
		} else if _, fatal := errors.AsType[*ConnectError](err); fatal {
			return nil, err
		} else {
			refusals = 0
		}
		if refusals == 2 {
			return nil, errors.Unwrap(err)
		}
		if ctx.Err() == nil {
			delay := l.cfg.Reconnect.Delay(attempt)
			l.log.Warn("connect failed", "reason", err, "next_try", delay)
			if sleep(ctx, delay) == nil {
				continue
			}
		}
		return nil, fmt.Errorf("reprise: %s cannot be reached: %w (last try: %v)", l.addr, context.Cause(ctx), err)
	}
}

// run keeps the link connected until ctx ends, and then closes it. c is the
// first connection.
func (l *link) run(ctx context.Context, c *conn) {
	defer l.set(nil, true)
	for attempt := 1; ; attempt++ {
		began := time.Now()
		l.set(c, false)
		l.log.Info("connected", "generation", c.gen)
		select {
		case <-ctx.Done():
			l.set(nil, true)
			c.end(closePatience)
			return
		case <-c.lost:
		}
		l.set(nil, false)
		if time.Since(began) >= steady {
			attempt = 1
		}
		if c = l.reconnect(ctx, c.reason, attempt); c == nil {
			return
		}
	}
}

// reconnect dials until it succeeds; nil means that ctx ended. Unlike connect
// it never gives up: credentials that worked before may work again.
func (l *link) reconnect(ctx context.Context, reason error, attempt int) *conn {
	event := "connection lost"
	for ; ; attempt++ {
		delay := l.cfg.Reconnect.Delay(attempt)
		l.log.Warn(event, "reason", reason, "next_try", delay)
		if sleep(ctx, delay) != nil {
			return nil
		}
		c, err := l.dial(ctx)
		if err == nil {
			return c
		}
		event, reason = "connect failed", err
	}
}

func (l *link) set(c *conn, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	l.closed = l.closed || closed
	close(l.changed)
	l.changed = make(chan struct{})
}

// get returns the connection, waiting for one until ctx ends.
func (l *link) get(ctx context.Context) (*conn, error) {
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
		}
	}
}

// sleep waits for d, or returns the reason ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retrier counts failures of something that is tried again and again.
type retrier struct {
	schedule backoff.Backoff
	failures int
}

// failed returns how long to wait after one more failure of something that had
// lasted for a while.
func (r *retrier) failed(lasted time.Duration) time.Duration {
	if lasted >= steady {
		r.failures = 0
	}
	r.failures++
	return r.schedule.Delay(r.failures)
}
