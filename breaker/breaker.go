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
	"cmp"
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

// State is what a Breaker does for now. Its text is for logs and metrics.
type State string

// States of a Breaker.
const (
	Closed   State = "closed"    // everything passes
	Open     State = "open"      // nothing does
	HalfOpen State = "half-open" // one attempt at a time does: a probe
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
	// error that does not is taken for a success: something answered. It is not
	// asked about a reprise.ErrNotAttempted, such as idempotent.ErrBusy, which is
	// neither. Default: all do, but for reprise.Park, which says that the message is
	// at fault.
	Counts func(error) bool

	// OnChange is told about each change. It must return at once, and may be called
	// by several goroutines at a time. Default: nobody is told.
	OnChange func(from, to State)
}

func (c Config) withDefaults() Config {
	c.Failures = cmp.Or(c.Failures, DefaultFailures)
	c.OpenFor = cmp.Or(c.OpenFor, DefaultOpenFor)
	c.Probes = cmp.Or(c.Probes, DefaultProbes)
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

	// mu guards all that follows, gobreaker's own state with it: what it calls
	// back, it would call with a lock of its own held.
	mu     sync.Mutex
	cb     *gobreaker.TwoStepCircuitBreaker[any]
	state  gobreaker.State // as last noticed
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
		MaxRequests:  uint32(b.cfg.Probes),
		Timeout:      b.cfg.OpenFor,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= b.cfg.Failures },
		IsSuccessful: func(err error) bool { return err == nil },
		IsExcluded:   func(err error) bool { return errors.Is(err, reprise.ErrNotAttempted) },
	})
	return b, nil
}

// Allow implements reprise.Breaker.
func (b *Breaker) Allow() (record func(error), wait time.Duration) {
	told := false
	defer func() {
		if !told && record != nil { // OnChange panicked: nobody gets to hear of this leave
			record(reprise.ErrNotAttempted)
		}
	}()
	b.do(func() { record, wait = b.allow() })
	told = true
	return record, wait
}

func (b *Breaker) allow() (record func(error), wait time.Duration) {
	b.notice()
	if b.probe {
		return nil, min(busy, b.cfg.OpenFor)
	}
	done, err := b.cb.Allow()
	probing := b.notice() == gobreaker.StateHalfOpen
	if err != nil {
		return nil, max(time.Millisecond, time.Until(b.opened.Add(b.cfg.OpenFor)))
	}
	b.probe = probing
	return func(err error) {
		result := err // also where Counts panics
		defer b.do(func() {
			if probing {
				b.probe = false
			}
			done(result)
		})
		if err != nil && !errors.Is(err, reprise.ErrNotAttempted) && !b.cfg.Counts(err) {
			result = nil // something answered
		}
	}, 0
}

// notice returns the state, and notes when the breaker opened.
func (b *Breaker) notice() gobreaker.State {
	now := b.cb.State()
	if now == gobreaker.StateOpen && b.state != now {
		b.opened = time.Now()
	}
	if now != gobreaker.StateHalfOpen {
		b.probe = false
	}
	b.state = now
	return now
}

// do does something to the state, and then tells what has changed.
func (b *Breaker) do(something func()) {
	b.mu.Lock()
	before := b.state
	something()
	after := b.notice()
	b.mu.Unlock()
	if after != before && b.cfg.OnChange != nil {
		b.cfg.OnChange(State(before.String()), State(after.String())) // whose words are the same
	}
}

// Probing implements reprise.Breaker.
func (b *Breaker) Probing() bool { return b.State() == HalfOpen }

// State returns what the breaker does now.
func (b *Breaker) State() State {
	var state gobreaker.State
	b.do(func() { state = b.notice() })
	return State(state.String())
}
