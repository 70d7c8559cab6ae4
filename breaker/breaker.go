// Package breaker implements a circuit breaker for workers. While the service that a handler calls is down, the worker
// stops consuming. The messages wait in their queue, and the wait does not count as an attempt.
//
//	closed ──── Failures in a row ───► open ──── OpenFor ───► half-open
//	   ▲                                 ▲                     │  │
//	   └── Probes in a row succeed ──────┼─────────────────────┘  │
//	                                     └── a probe fails ───────┘
//
// A closed breaker admits all attempts. An open breaker admits none. A half-open
// breaker admits one attempt at a time, the probe, which tests the service.
//
// The package uses the state machine of github.com/sony/gobreaker.
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

// State is the current state of a Breaker. The string is suitable for logs and metrics.
type State string

// States of a Breaker.
const (
	Closed   State = "closed"    // admits all attempts
	Open     State = "open"      // admits no attempt
	HalfOpen State = "half-open" // admits one attempt at a time, the probe
)

// Config configures a Breaker. The zero value selects the defaults.
type Config struct {
	// Failures is the number of consecutive failed attempts that open the breaker. Default: 5.
	Failures int

	// OpenFor is the time for which the breaker stays open before it becomes half-open. Default: 30 s.
	OpenFor time.Duration

	// Probes is the number of consecutive successful probes that close the breaker. Default: 1.
	Probes int

	// Counts reports whether an error indicates a failure of the downstream service. If Counts returns false, the
	// breaker treats the attempt as a success, because the service has responded. An error that wraps
	// reprise.ErrNotAttempted, such as idempotent.ErrBusy, is neither a success nor a failure, and the breaker does not
	// call Counts for it. Default: all errors count, except errors that reprise.Park returns, because they mark the
	// message as faulty.
	Counts func(error) bool

	// OnChange, if not nil, is called after each state change. It must not block and must be safe for concurrent use.
	// Default: nil.
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

// Validate returns an error that lists all invalid fields and their permitted values.
func (c Config) Validate() error {
	var errs []error
	if c.Failures < 0 || c.Failures > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("breaker: Config.Failures must be between 0 and %d: got %d (0 means %d)", math.MaxInt32, c.Failures, DefaultFailures))
	}
	if c.OpenFor < 0 {
		errs = append(errs, fmt.Errorf("breaker: Config.OpenFor must not be negative: got %s (0 means %s)", c.OpenFor, DefaultOpenFor))
	}
	if c.Probes < 0 || c.Probes > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("breaker: Config.Probes must be between 0 and %d: got %d (0 means %d)", math.MaxInt32, c.Probes, DefaultProbes))
	}
	return errors.Join(errs...)
}

// Breaker is a circuit breaker. Set it in the field Breaker of a reprise.WorkerConfig. Workers that depend on the same
// service may share a Breaker. A Breaker is safe for concurrent use.
type Breaker struct {
	cfg Config

	// mu guards the fields below and the state of gobreaker. OnChange is not passed to gobreaker as a callback, because
	// gobreaker holds its lock during callbacks.
	mu     sync.Mutex
	cb     *gobreaker.TwoStepCircuitBreaker[any]
	state  gobreaker.State // result of the last call of refresh
	opened time.Time
	probe  bool // a probe is in progress
}

var _ reprise.Breaker = (*Breaker)(nil)

// maxProbeWait is the maximum wait that Allow returns while a probe is in progress.
const maxProbeWait = 5 * time.Second

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
	returned := false
	defer func() {
		if !returned && record != nil { // OnChange panicked, so the caller will not receive record
			record(reprise.ErrNotAttempted)
		}
	}()
	b.update(func() { record, wait = b.allow() })
	returned = true
	return record, wait
}

func (b *Breaker) allow() (record func(error), wait time.Duration) {
	b.refresh()
	if b.probe {
		return nil, min(maxProbeWait, b.cfg.OpenFor)
	}
	done, err := b.cb.Allow()
	probing := b.refresh() == gobreaker.StateHalfOpen
	if err != nil {
		return nil, max(time.Millisecond, time.Until(b.opened.Add(b.cfg.OpenFor)))
	}
	b.probe = probing
	return func(err error) {
		result := err // the result is still err if Counts panics
		defer b.update(func() {
			if probing {
				b.probe = false
			}
			done(result)
		})
		if err != nil && !errors.Is(err, reprise.ErrNotAttempted) && !b.cfg.Counts(err) {
			result = nil // the service has responded
		}
	}, 0
}

// refresh updates the fields of b from the state of gobreaker, and returns this state. The caller must hold the lock.
func (b *Breaker) refresh() gobreaker.State {
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

// update calls change while it holds the lock. Then it releases the lock and, if the state has changed, calls OnChange.
func (b *Breaker) update(change func()) {
	b.mu.Lock()
	before := b.state
	change()
	after := b.refresh()
	b.mu.Unlock()
	if after != before && b.cfg.OnChange != nil {
		b.cfg.OnChange(State(before.String()), State(after.String())) // gobreaker uses the same strings
	}
}

// Probing implements reprise.Breaker.
func (b *Breaker) Probing() bool { return b.State() == HalfOpen }

// State returns the current state.
func (b *Breaker) State() State {
	var state gobreaker.State
	b.update(func() { state = b.refresh() })
	return State(state.String())
}
