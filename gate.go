package reprise

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Limiter bounds how often a worker begins an attempt: Wait returns when the
// next one may. The rate.Limiter of golang.org/x/time/rate is one, and can be
// shared by several workers. It must be safe for concurrent use, and Wait must end
// when ctx does. An error other than the context's is taken for a limit that cannot
// be kept, and pauses the worker for a second.
//
// While it waits, so do the messages that were fetched, at most Prefetch of them,
// and go back to their queue before ConsumerTimeout is over. Before RabbitMQ 4.3 that
// costs a message one of the deliveries it is allowed: for a limit so slow, set a
// Prefetch that is handled in that time.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Breaker keeps a worker from consuming while what its handler calls is down, so
// that messages do not use up their attempts for nothing. Package breaker has
// one. It must be safe for concurrent use, and may be shared by workers that
// depend on the same thing. Its methods must return at once: consuming waits for them.
type Breaker interface {
	// Allow is asked before each attempt. With wait above 0, the worker stops
	// consuming for that long. Otherwise the attempt begins, and record is called once
	// with what the handler returned, which may be an ErrNotAttempted, or with that
	// itself.
	Allow() (record func(error), wait time.Duration)

	// Probing reports whether it is trying if things are better: one attempt
	// at a time then. What else was fetched stays in the queue.
	Probing() bool
}

// ErrNotAttempted is what a Breaker's record is given for an attempt that was
// allowed and then says nothing about the downstream: it was cut short by the
// end of the worker, or never begun. Middleware that did not call the handler for a
// reason of its own says so by an error that wraps it, as idempotent.ErrBusy does.
var ErrNotAttempted = errors.New("reprise: not attempted")

// errBreakerOpen is the reason of a pause that the Breaker asked for.
var errBreakerOpen = errors.New("reprise: the circuit breaker is open")

// faultPause is how long a worker pauses when its Limiter or Breaker fails.
const faultPause = time.Second

// gate is what an attempt passes before it begins. It is closed during a pause.
type gate struct {
	limiter Limiter // or nil
	breaker Breaker // or nil

	mu     sync.Mutex
	until  time.Time
	reason error
	shut   chan struct{} // closed during a pause
}

func newGate(l Limiter, b Breaker) *gate {
	return &gate{limiter: l, breaker: b, shut: make(chan struct{})}
}

// pause closes the gate for d. A pause that is to last longer already goes on.
func (g *gate) pause(d time.Duration, reason error) {
	if d <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.until) {
		g.until, g.reason = until, reason
	}
	select {
	case <-g.shut:
	default:
		close(g.shut)
	}
}

// paused returns a channel that is closed during a pause.
func (g *gate) paused() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// left is how long the pause lasts, and why; 0 if there is none.
func (g *gate) left() (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := time.Until(g.until)
	if left > 0 {
		return left, g.reason
	}
	select {
	case <-g.shut:
		g.shut = make(chan struct{})
	default:
	}
	return 0, nil
}

// enter lets one attempt through: record, which may be nil, takes its result.
// It returns false where none may begin: ctx has ended, or the gate is closed.
func (g *gate) enter(ctx context.Context) (record func(error), ok bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	if left, _ := g.left(); left > 0 {
		return nil, false
	}
	if g.breaker != nil {
		wait, reason := faultPause, errBreakerOpen
		err := guard("breaker", func() error {
			record, wait = g.breaker.Allow()
			return nil
		})
		if err != nil {
			reason = err
		}
		if wait > 0 {
			g.pause(wait, reason)
			return nil, false
		}
	}
	return record, true
}

// limit waits for the limiter's leave. One that fails closes the gate for a while.
func (g *gate) limit(ctx context.Context) bool {
	err := guard("limiter", func() error { return g.limiter.Wait(ctx) })
	if err != nil && ctx.Err() == nil {
		g.pause(faultPause, err)
	}
	return err == nil
}

// probing reports whether the breaker wants one attempt at a time. One that fails
// closes the gate for a while.
func (g *gate) probing() (yes bool) {
	if g.breaker == nil {
		return false
	}
	err := guard("breaker", func() error {
		yes = g.breaker.Probing()
		return nil
	})
	if err != nil {
		g.pause(faultPause, err)
	}
	return yes
}
