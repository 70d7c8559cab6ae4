package consume

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/guard"
)

// Limiter is reprise.Limiter.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Breaker is reprise.Breaker.
type Breaker interface {
	Allow() (record func(error), wait time.Duration)
	Probing() bool
}

// ErrNotAttempted is recorded for a permit that no attempt used.
var ErrNotAttempted = errors.New("reprise: not attempted")

// errBreakerOpen is the reason of a pause that the Breaker requested.
var errBreakerOpen = errors.New("reprise: the circuit breaker is open")

// faultPause is the length of the pause after a failure of the Limiter or the Breaker.
const faultPause = time.Second

// admission collects the requirements of the next attempt: first a slot, or all slots if the attempt
// must run alone, and then a permit of the limiter. Its owner waits for slots and permits, and passes
// them to the admission. One goroutine uses it.
//
// A request to the limiter continues while no message is pending. If messages returned to their
// queue in the meantime, a limiter that counts from the start of a request would otherwise never
// finish. An unused permit is lost.
type admission struct {
	consumer *Consumer
	alive    context.Context
	need     int     // number of required slots
	taken    []*slot // slots received so far
	passed   bool    // the limiter has issued a permit

	permit <-chan bool // gets the limiter's answer; nil: no request is in progress
	cancel context.CancelFunc
}

// admission returns the requirements of the next attempts. It does not get a permit after the end of alive.
func (c *Consumer) admission(alive context.Context, alone bool) *admission {
	need := 1
	if alone {
		need = c.Concurrency
	}
	return &admission{consumer: c, alive: alive, need: need}
}

// slots returns the channel of the next slot, or nil if the admission has enough slots.
func (a *admission) slots() <-chan *slot {
	if len(a.taken) == a.need {
		return nil
	}
	return a.consumer.slots.free
}

// take adds a slot.
func (a *admission) take(x *slot) { a.taken = append(a.taken, x) }

// answered accepts the limiter's answer. A failure of the limiter causes a pause. ready repeats the
// request after the pause.
func (a *admission) answered(yes bool) {
	a.cancel()
	a.permit, a.cancel = nil, nil
	a.passed = yes && len(a.taken) == a.need
}

// ready reports whether all requirements are met. If only the limiter's permit is missing, ready
// requests it.
func (a *admission) ready() bool {
	g := a.consumer.gate
	switch {
	case len(a.taken) < a.need:
		return false
	case g.limiter == nil || a.passed:
		return true
	}
	if paused, _ := g.left(); a.permit == nil && paused <= 0 {
		ctx, cancel := context.WithCancel(a.alive)
		permit := make(chan bool, 1)
		a.permit, a.cancel = permit, cancel
		a.consumer.attempts.Go(func() { permit <- g.limit(ctx) })
	}
	return false
}

// begin starts an attempt and returns true. If the gate is closed, begin frees the slots instead.
func (a *admission) begin(d *Delivery) bool {
	record, ok := a.consumer.gate.enter(a.alive)
	if !ok {
		a.releaseSlots()
		return false
	}
	x := a.taken[0]
	d.slot, d.alone, d.record = x, len(a.taken) > 1, record
	a.taken, a.passed = a.taken[:0], false
	a.consumer.attempts.Add(1)
	x.begins = d
	go x.attempt()
	return true
}

// releaseSlots frees the slots.
func (a *admission) releaseSlots() {
	for _, x := range a.taken {
		a.consumer.slots.free <- x
	}
	a.taken, a.passed = a.taken[:0], false
}

// end frees the slots and cancels the request to the limiter.
func (a *admission) end() {
	a.releaseSlots()
	if a.cancel != nil {
		a.cancel()
		a.permit, a.cancel = nil, nil
	}
}

// Begin records the start of the handler.
func (d *Delivery) Begin(now time.Time) {
	d.Began = now
	d.slot.handled.Store(d)
}

// End ends the attempt. It frees the slot, reports the result of the attempt to the breaker, and
// pauses the consumer for the given time. It must be called once.
func (d *Delivery) End(result error, pause time.Duration, reason error) {
	c := d.session.consumer
	if d.record != nil {
		if err := guard.Call("breaker", func() error { d.record(result); return nil }); err != nil {
			c.Log.Error("breaker failed", "error", err)
		}
	}
	c.gate.pause(pause, reason)
	c.slots.leave(d)
}

// slots are the places for running attempts.
type slots struct {
	all  []slot
	free chan *slot
}

// slot is the place for one attempt.
type slot struct {
	begins  *Delivery                // delivery of the attempt that starts
	attempt func()                   // runs the attempt; a field, since a go statement allocates for each method call
	handled atomic.Pointer[Delivery] // nil: no delivery, or not yet known
}

func newSlots(n int) *slots {
	s := &slots{all: make([]slot, n), free: make(chan *slot, n)}
	for i := range s.all {
		x := &s.all[i]
		x.attempt = func() { x.begins.attempt() }
		s.free <- x
	}
	return s
}

// leave frees the slot of an attempt, or all slots if the attempt ran alone.
func (s *slots) leave(d *Delivery) {
	d.slot.handled.Store(nil)
	d.slot.begins = nil // an idle slot must not keep the message in memory
	if !d.alone {
		s.free <- d.slot
		return
	}
	for i := range s.all {
		s.free <- &s.all[i]
	}
}

// taken returns the number of slots in use.
func (s *slots) taken() int { return cap(s.free) - len(s.free) }

// running yields the messages that handlers are processing.
func (s *slots) running() iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		for i := range s.all {
			if d := s.all[i].handled.Load(); d != nil && !yield(d) {
				return
			}
		}
	}
}

// gate admits attempts, except during a pause.
type gate struct {
	limiter Limiter // may be nil
	breaker Breaker // may be nil

	mu     sync.Mutex
	until  time.Time
	reason error
	held   error         // reason of hold; nil: not held
	shut   chan struct{} // closed during a pause
	turned chan struct{} // closed and replaced by hold
}

func newGate(l Limiter, b Breaker) *gate {
	return &gate{limiter: l, breaker: b, shut: make(chan struct{}), turned: make(chan struct{})}
}

// unlimited is the remaining time of a pause without an end.
const unlimited = time.Duration(math.MaxInt64)

// hold closes the gate until the next call of hold with nil.
func (g *gate) hold(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = reason
	close(g.turned)
	g.turned = make(chan struct{})
	if reason != nil {
		g.close()
	}
}

// turn returns a channel that the next call of hold closes.
func (g *gate) turn() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turned
}

// close makes paused return a closed channel. The caller holds mu.
func (g *gate) close() {
	select {
	case <-g.shut:
	default:
		close(g.shut)
	}
}

// pause closes the gate for d. It does not shorten a longer pause.
func (g *gate) pause(d time.Duration, reason error) {
	if d <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.until) {
		g.until, g.reason = until, reason
	}
	g.close()
}

// paused returns a channel that is closed during a pause.
func (g *gate) paused() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// left returns the remaining time of the pause and its reason, or 0 outside a pause.
func (g *gate) left() (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		return unlimited, g.held
	}
	if left := time.Until(g.until); left > 0 {
		return left, g.reason
	}
	select {
	case <-g.shut:
		g.shut = make(chan struct{})
	default:
	}
	return 0, nil
}

// enter admits one attempt. record takes the result of the attempt and may be nil. enter returns
// false after the end of ctx or if the gate is closed.
func (g *gate) enter(ctx context.Context) (record func(error), ok bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	if left, _ := g.left(); left > 0 {
		return nil, false
	}
	if g.breaker == nil {
		return nil, true
	}
	wait, reason := faultPause, errBreakerOpen
	err := guard.Call("breaker", func() error {
		record, wait = g.breaker.Allow()
		return nil
	})
	if err != nil {
		reason = err
	}
	g.pause(wait, reason)
	return record, wait <= 0
}

// limit waits for the limiter's permit. A failure closes the gate for faultPause.
func (g *gate) limit(ctx context.Context) bool {
	err := guard.Call("limiter", func() error { return g.limiter.Wait(ctx) })
	if err != nil && ctx.Err() == nil {
		g.pause(faultPause, err)
	}
	return err == nil
}

// probing reports whether the breaker allows only one attempt at a time. A failure closes the
// gate for faultPause.
func (g *gate) probing() (yes bool) {
	if g.breaker == nil {
		return false
	}
	err := guard.Call("breaker", func() error {
		yes = g.breaker.Probing()
		return nil
	})
	if err != nil {
		g.pause(faultPause, err)
	}
	return yes
}
