package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// Config configures a Limit. Name, and either Rate or Concurrency, are required.
type Config struct {
	// Name identifies the limit on the virtual host. All processes that use the name share the limit, and must configure the
	// same values: otherwise, those of the process that divides it apply. At most MaxName bytes. Required.
	Name string

	// Rate is the maximum number of attempts that start per Per. Default: no limit of the rate.
	Rate float64

	// Per is the unit of Rate. Default: 1 s.
	Per time.Duration

	// Concurrency is the maximum number of attempts that run at the same time. Default: no limit.
	Concurrency int

	// Logger receives the events of the limit. Default: no logging.
	Logger *slog.Logger
}

// MaxName is the maximum length of a name in bytes, because names of queues have at most 255.
const MaxName = 200

// Validate reports invalid settings and their valid values.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("limit: Config."+format, args...)) }
	if c.Name == "" || len(c.Name) > MaxName {
		fault("Name must have between 1 and %d bytes: got %q", MaxName, c.Name)
	}
	if (c.Rate == 0) == (c.Concurrency == 0) {
		fault("Rate or Concurrency must be set, and not both (create two limits)")
	}
	if c.Rate < 0 || math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0) {
		fault("Rate must be positive: got %v", c.Rate)
	}
	if c.Concurrency < 0 {
		fault("Concurrency must be positive: got %d", c.Concurrency)
	}
	if c.Per < 0 {
		fault("Per must not be negative: got %s (0 means 1s)", c.Per)
	}
	return errors.Join(errs...)
}

// Limit is the part of a shared limit that this process uses. It implements reprise.Limiter, and several workers may share it.
// Its methods are safe for concurrent use.
type Limit struct {
	cfg  Config
	id   string
	born time.Time
	wake chan struct{} // receives a token when a request is due
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	member  member
	changed chan struct{} // closed and replaced when the share changes or a permit returns
	trouble error         // the reason why there is no share; nil: unknown
}

// New starts to share a limit. It ends with Close, or when the client is closed.
func New(client *reprise.Client, cfg Config) (*Limit, error) {
	if client == nil {
		return nil, errors.New("limit: client must not be nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Per == 0 {
		cfg.Per = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Limit{
		cfg: cfg, id: rand.Text()[:10], born: time.Now(), wake: make(chan struct{}, 1), done: make(chan struct{}),
		changed: make(chan struct{}), trouble: errors.New("it has just started"),
	}
	l.member = member{whole: cfg.Concurrency > 0, limit: cfg.total(), sent: -1}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	go l.run(ctx, client)
	return l, nil
}

// total is the limit in the unit of shares.
func (c Config) total() float64 {
	if c.Concurrency > 0 {
		return float64(c.Concurrency)
	}
	return c.Rate / c.Per.Seconds()
}

// Close returns the share. Waiting calls of Wait return ErrClosed. It returns when all requests have ended.
func (l *Limit) Close() {
	l.stop()
	<-l.done
}

// ErrClosed is returned by Wait after Close, or after the client has been closed.
var ErrClosed = errors.New("limit: closed")

// Share returns the present share of this process: permits per second, or permits at the same time.
func (l *Limit) Share() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.member.current(l.now())
}

func (l *Limit) now() time.Duration { return time.Since(l.born) }

// Wait waits for a permit. With Concurrency, the caller returns it with Done. Wait returns an error if the process has had no
// share for lease: the messages that a worker has fetched then return to the queue, for other processes.
func (l *Limit) Wait(ctx context.Context) error {
	giveUp := time.NewTimer(lease)
	defer giveUp.Stop()
	l.wait(1)
	defer l.wait(-1)
	for {
		l.mu.Lock()
		now := l.now()
		taken, wait := l.member.take(now)
		changed, trouble := l.changed, l.trouble
		if wait < 0 && !taken {
			l.ask(now)
		}
		if l.member.current(now) > 0 {
			giveUp.Reset(lease)
		}
		l.mu.Unlock()
		if taken {
			return nil
		}
		var ready <-chan time.Time
		if wait > 0 {
			ready = time.After(wait)
		}
		select {
		case <-ready:
		case <-changed:
		case <-l.done:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-giveUp.C:
			if trouble == nil {
				trouble = errors.New("other processes use it up")
			}
			return fmt.Errorf("limit %s: this process has no share: %w", l.cfg.Name, trouble)
		}
	}
}

// TryWait takes a permit if one is available, and reports whether it did. Wait then is not necessary.
func (l *Limit) TryWait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, _ := l.member.take(l.now())
	return taken
}

// wait changes the number of waiting callers.
func (l *Limit) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member.waiting += n
}

// Done returns a permit of Wait. The worker calls it when the attempt has ended.
func (l *Limit) Done() {
	if l.cfg.Concurrency == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	over := float64(l.member.running) > l.member.current(l.now())
	l.member.running--
	if l.member.waiting > 0 {
		l.signal()
	}
	if over { // others wait for the permit
		l.ask(l.now())
	}
}

// signal wakes the callers of Wait. The caller must hold mu.
func (l *Limit) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// gap is the minimum time between requests, except after a share has become smaller.
const gap = beat / 10

// ask makes a request due, unless the latest is recent. The caller must hold mu.
func (l *Limit) ask(now time.Duration) {
	if now-l.member.sent < gap {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
