// Package breaker has a circuit breaker for workers: while what a handler calls is
// down, the worker stops consuming, and messages wait in their queue instead of
// using up their attempts.
//
//	closed ──── Failures in a row ───► open ──── OpenFor ───► half-open
//	   ▲                                 ▲                     │  │
//	   └── Probes in a row succeed ──────┼─────────────────────┘  │
//	                                     └── a probe fails ───────┘
//
// Closed, everything passes. Open, nothing does. Half-open, one attempt at a time
// does, to see if things are better: a probe.
//
// The state machine is that of github.com/sony/gobreaker.
package breaker

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/reprisemq/reprise"
)

// Defaults of Config.
const (
	DefaultFailures = 5
	DefaultOpenFor  = 30 * time.Second
	DefaultProbes   = 1
)

// Config describes a Breaker. The zero value means the defaults.
type Config struct {
	// Failures is how many attempts in a row must fail for the breaker to open.
	// Default 5.
	Failures int

	// OpenFor is how long it stays open before it lets a probe through. Default
	// 30 s.
	OpenFor time.Duration

	// Probes is how many probes in a row must succeed for it to close. Default 1.
	Probes int

	// Counts reports whether an error says that the downstream is in trouble. An
	// error that does not is taken for a success: something answered. Default:
	// all do, but for reprise.Park, which says that the message is at fault.
	Counts func(error) bool

	// OnChange is told about each change, with "closed", "open" or "half-open".
	// It must return at once, and not call the Breaker. Default: nobody is told.
	OnChange func(from, to string)
}

func (c Config) withDefaults() Config {
	if c.Failures == 0 {
		c.Failures = DefaultFailures
	}
	if c.OpenFor == 0 {
		c.OpenFor = DefaultOpenFor
	}
	if c.Probes == 0 {
		c.Probes = DefaultProbes
	}
	if c.Counts == nil {
		c.Counts = func(err error) bool {
			_, park := errors.AsType[*reprise.ParkError](err)
			return !park
		}
	}
	return c
}

// Validate reports numbers that make no breaker and what to write instead.
func (c Config) Validate() error {
	var errs []error
	if c.Failures < 0 || c.Failures > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("breaker: Config.Failures %d: use 1 or more, or 0 for %d", c.Failures, DefaultFailures))
	}
	if c.OpenFor < 0 {
		errs = append(errs, fmt.Errorf("breaker: Config.OpenFor %s: use a positive duration, or 0 for %s", c.OpenFor, DefaultOpenFor))
	}
	if c.Probes < 0 || c.Probes > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("breaker: Config.Probes %d: use 1 or more, or 0 for %d", c.Probes, DefaultProbes))
	}
	return errors.Join(errs...)
}

// Breaker is a circuit breaker for the Breaker field of a reprise.WorkerConfig.
// Workers that depend on the same downstream may share one. Safe for
// concurrent use.
type Breaker struct {
	cfg Config
	cb  *gobreaker.TwoStepCircuitBreaker[any]

	mu     sync.Mutex
	opened time.Time
	probe  bool // one is under way
}

var _ reprise.Breaker = (*Breaker)(nil)

// busy is how long at most a worker waits that is not let through because another
// one's probe is under way, before it asks again.
const busy = 5 * time.Second

// New returns a closed Breaker.
func New(cfg Config) (*Breaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Breaker{cfg: cfg.withDefaults()}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:   uint32(b.cfg.Probes),
		Timeout:       b.cfg.OpenFor,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= b.cfg.Failures },
		OnStateChange: b.changed,
		IsSuccessful:  func(err error) bool { return err == nil || !b.cfg.Counts(err) },
		IsExcluded:    func(err error) bool { return errors.Is(err, reprise.ErrNotAttempted) },
	})
	return b, nil
}

func (b *Breaker) changed(_ string, from, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		b.mu.Lock()
		b.opened = time.Now()
		b.mu.Unlock()
	}
	if b.cfg.OnChange != nil {
		b.cfg.OnChange(from.String(), to.String())
	}
}

// Allow implements reprise.Breaker.
func (b *Breaker) Allow() (record func(error), wait time.Duration) {
	probing := b.Probing()
	b.mu.Lock()
	defer b.mu.Unlock()
	if probing && b.probe {
		return nil, min(busy, b.cfg.OpenFor)
	}
	done, err := b.cb.Allow()
	if err != nil {
		return nil, max(time.Millisecond, time.Until(b.opened.Add(b.cfg.OpenFor)))
	}
	if !probing {
		return done, 0
	}
	b.probe = true
	return func(err error) {
		b.mu.Lock()
		b.probe = false
		b.mu.Unlock()
		done(err)
	}, 0
}

// Probing implements reprise.Breaker.
func (b *Breaker) Probing() bool { return b.cb.State() == gobreaker.StateHalfOpen }

// State returns "closed", "open" or "half-open".
func (b *Breaker) State() string { return b.cb.State().String() }
