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

// ErrNotAttempted is recorded for a permit of which no use was made.
var ErrNotAttempted = errors.New("reprise: not attempted")

// errBreakerOpen is the reason of a pause that the Breaker asked for.
var errBreakerOpen = errors.New("reprise: the circuit breaker is open")

// faultPause is the length of a pause when Limiter or Breaker fails.
const faultPause = time.Second

// admission gathers what the next attempt needs: a slot, or all of them if no other may
// run beside it; then the leave of the limiter. Its owner waits, and hands over what has
// come. One goroutine uses it.
//
// A limiter that was asked goes on being asked while there is nothing to begin: one that
// counts from the question would never be done if messages go back to their queue meanwhile.
// A leave that nobody uses is lost.
type admission struct {
	consumer *Consumer
	alive    context.Context
	need     int     // slots
	taken    []*slot // slots that have come
	passed   bool    // the limiter has given its leave

	permit <-chan bool // gets the limiter's answer; nil: it is not being asked
	cancel context.CancelFunc
}

// admission returns what the next attempts need. It gets nothing after the end of alive.
func (c *Consumer) admission(alive context.Context, alone bool) *admission {
	need := 1
	if alone {
		need = c.Concurrency
	}
	return &admission{consumer: c, alive: alive, need: need}
}

// slots returns the channel of the next slot, or nil if there are enough.
func (a *admission) slots() <-chan *slot {
	if len(a.taken) == a.need {
		return nil
	}
	return a.consumer.slots.free
}

// take takes a slot that has come.
func (a *admission) take(x *slot) { a.taken = append(a.taken, x) }

// answered takes the limiter's answer. After a no, it is asked again when the pause is
// over that its failure has caused.
func (a *admission) answered(yes bool) {
	a.cancel()
	a.permit, a.cancel = nil, nil
	a.passed = yes && len(a.taken) == a.need
}

// ready reports whether everything has come. If only the limiter's leave is missing, it
// asks for it.
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

// begin begins an attempt, unless the gate is closed: then it frees the slots.
func (a *admission) begin(d *Delivery) bool {
	record, ok := a.consumer.gate.enter(a.alive)
	if !ok {
		a.vacate()
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

// vacate frees the slots.
func (a *admission) vacate() {
	for _, x := range a.taken {
		a.consumer.slots.free <- x
	}
	a.taken, a.passed = a.taken[:0], false
}

// end frees the slots and asks for nothing any more.
func (a *admission) end() {
	a.vacate()
	if a.cancel != nil {
		a.cancel()
		a.permit, a.cancel = nil, nil
	}
}

// Begin notes that the delivery is being handled.
func (d *Delivery) Begin(now time.Time) {
	d.Began = now
	d.slot.handled.Store(d)
}

// End ends the attempt: it frees the slot, tells the breaker what the attempt has returned,
// and pauses the consumer for a while. It has to be called once.
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

// slots are the places of running attempts.
type slots struct {
	all  []slot
	free chan *slot
}

// slot is the place of one attempt.
type slot struct {
	begins  *Delivery                // whose attempt begins
	attempt func()                   // makes it; a field, since a go statement allocates for each call of a method
	handled atomic.Pointer[Delivery] // nil: none, or not yet known
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

// leave frees the slot of an attempt, or all of them if it was alone.
func (s *slots) leave(d *Delivery) {
	d.slot.handled.Store(nil)
	d.slot.begins = nil // an idle slot keeps no message
	if !d.alone {
		s.free <- d.slot
		return
	}
	for i := range s.all {
		s.free <- &s.all[i]
	}
}

// taken returns the number of slots that are.
func (s *slots) taken() int { return cap(s.free) - len(s.free) }

// running yields the messages that are being handled.
func (s *slots) running() iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		for i := range s.all {
			if d := s.all[i].handled.Load(); d != nil && !yield(d) {
				return
			}
		}
	}
}

// gate lets attempts through, except during a pause.
type gate struct {
	limiter Limiter // or nil
	breaker Breaker // or nil

	mu     sync.Mutex
	until  time.Time
	reason error
	held   error         // why it is closed until hold opens it; nil: it is not
	shut   chan struct{} // closed during a pause
	turned chan struct{} // closed and replaced by hold
}

func newGate(l Limiter, b Breaker) *gate {
	return &gate{limiter: l, breaker: b, shut: make(chan struct{}), turned: make(chan struct{})}
}

// unlimited is what is left of a pause without an end.
const unlimited = time.Duration(math.MaxInt64)

// hold closes the gate until it is called with nil.
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

// close has paused return a closed channel. The caller has locked mu.
func (g *gate) close() {
	select {
	case <-g.shut:
	default:
		close(g.shut)
	}
}

// pause closes the gate for d. A longer pause goes on.
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

// left returns the rest of the pause, and its reason; 0 if there is none.
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

// enter lets one attempt through: record, which may be nil, takes its result. It returns
// false if ctx has ended, or the gate is closed.
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

// limit waits for the limiter's leave. A failure closes the gate for a while.
func (g *gate) limit(ctx context.Context) bool {
	err := guard.Call("limiter", func() error { return g.limiter.Wait(ctx) })
	if err != nil && ctx.Err() == nil {
		g.pause(faultPause, err)
	}
	return err == nil
}

// probing reports whether the breaker allows one attempt at a time. A failure closes the
// gate for a while.
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
