package consume

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/guard"
)

// Limiter is identical to reprise.Limiter.
type Limiter interface {
	Wait(ctx context.Context) error
}

// trier is a Limiter that can issue a permit immediately. Otherwise, TryWait returns false, and Wait follows.
type trier interface{ TryWait() bool }

// releaser is a Limiter that limits the number of running attempts. Done is called once for each permit.
type releaser interface{ Done() }

// Breaker is identical to reprise.Breaker.
type Breaker interface {
	Allow() (record func(error), wait time.Duration)
	Probing() bool
}

// ErrNotAttempted is passed to the record function of a Breaker if no attempt used the permission.
var ErrNotAttempted = errors.New("reprise: not attempted")

// errBreakerOpen is the reason for a pause that the Breaker requested.
var errBreakerOpen = errors.New("reprise: circuit breaker is open")

// faultPause is the length of the pause after a failure of the Limiter or the Breaker.
const faultPause = time.Second

// admission collects the requirements of the next attempt: first a slot, or all slots if the attempt must run alone, and
// then a permit of the limiter. Its owner waits for slots and permits, and passes them to the admission. It is not safe
// for concurrent use.
//
// A request to the limiter continues even if no message is pending. If a requeue canceled the request, a limiter that
// measures the time from the start of a request might never issue a permit. An unused permit is lost.
type admission struct {
	consumer *Consumer
	alive    context.Context
	alone    bool    // the attempt must run alone
	need     int     // number of required slots
	taken    []*slot // slots received so far
	passed   bool    // the limiter has issued a permit

	permit <-chan bool // receives the result of the request to the limiter; nil: no request is in progress
	cancel context.CancelFunc
}

// admission returns an admission for the next attempts, which does not request permits after alive is done.
func (c *Consumer) admission(alive context.Context, alone bool) *admission {
	need := 1
	if alone {
		need = c.Concurrency
	}
	return &admission{consumer: c, alive: alive, alone: alone, need: need}
}

// slots returns the channel that provides the next slot, or nil if the admission has enough slots.
func (a *admission) slots() <-chan *slot {
	if len(a.taken) == a.need {
		return nil
	}
	return a.consumer.slots.free
}

// take adds a slot.
func (a *admission) take(x *slot) { a.taken = append(a.taken, x) }

// answered records the result of the request to the limiter. A failure of the limiter causes a pause, after which ready
// repeats the request.
func (a *admission) answered(yes bool) {
	a.cancel()
	a.permit, a.cancel = nil, nil
	if a.passed = yes && len(a.taken) == a.need; yes && !a.passed {
		a.consumer.pauser.release()
	}
}

// ready reports whether all requirements are met. If only the limiter's permit is missing, ready
// requests it.
func (a *admission) ready() bool {
	p := a.consumer.pauser
	switch {
	case len(a.taken) < a.need:
		return false
	case p.limiter == nil || a.passed:
		return true
	}
	if paused, _ := p.remaining(); a.permit == nil && paused <= 0 {
		if a.passed = p.tryLimit(); a.passed {
			return true
		}
		ctx, cancel := context.WithCancel(a.alive)
		permit := make(chan bool, 1)
		a.permit, a.cancel = permit, cancel
		a.consumer.attempts.Go(func() { permit <- p.limit(ctx) })
	}
	return false
}

// begin starts an attempt and returns true. If no attempt may start, for example during a pause, begin frees the slots and
// returns false.
func (a *admission) begin(d *Delivery) bool {
	record, ok := a.consumer.pauser.enter(a.alive)
	if !ok {
		a.releaseSlots()
		return false
	}
	x := a.taken[0]
	d.slot, d.alone, d.record = x, len(a.taken) > 1, record
	a.taken, a.passed = a.taken[:0], false
	a.consumer.attempts.Add(1)
	a.consumer.lanes.begin(d)
	if d.bulkhead != nil {
		d.bulkhead.running.Add(1)
	}
	a.consumer.start(d)
	return true
}

// releaseSlots frees the slots and discards the permit of the limiter.
func (a *admission) releaseSlots() {
	if a.passed {
		a.consumer.pauser.release()
	}
	for _, x := range a.taken {
		a.consumer.slots.free <- x
	}
	a.taken, a.passed = a.taken[:0], false
}

// end frees the slots and cancels the request to the limiter.
func (a *admission) end() {
	a.releaseSlots()
	if a.cancel == nil {
		return
	}
	a.cancel()
	permit, p := a.permit, a.consumer.pauser
	a.permit, a.cancel = nil, nil
	if _, ok := p.limiter.(releaser); ok {
		a.consumer.attempts.Go(func() {
			if <-permit {
				p.release()
			}
		})
	}
}

// Begin records the start of the handler.
func (d *Delivery) Begin(now time.Time) {
	d.Began = now
	d.startLease()
	d.slot.handle(d, d.Body)
}

// End ends the attempt. It frees the slot, reports the result of the attempt to the breaker, and pauses the consumer for
// the given time. It must be called exactly once.
func (d *Delivery) End(result error, pause time.Duration, reason error) {
	c := d.session.consumer
	if d.lease != nil {
		d.lease.detach()
	}
	if d.record != nil {
		if err := guard.Call("breaker", func() error { d.record(result); return nil }); err != nil {
			c.loggedBreaker.Log(c.Log, slog.LevelError, "breaker failed", "error", err)
		}
	}
	c.pauser.release()
	c.pauser.pause(pause, reason)
	c.lanes.end(d)
	c.slots.leave(d)
	if d.bulkhead != nil {
		d.bulkhead.running.Add(-1)
		select {
		case c.vacated <- struct{}{}:
		default:
		}
	}
}

// Bulkhead limits the number of attempts that run at the same time for some of the deliveries. A delivery above the limit
// stays pending, without a slot.
type Bulkhead struct {
	limit   int32
	running atomic.Int32
}

// NewBulkhead returns a Bulkhead for at most limit attempts.
func NewBulkhead(limit int) *Bulkhead {
	return &Bulkhead{limit: int32(min(limit, math.MaxInt32))}
}

// isFull reports whether no attempt may start. Only the dispatcher starts attempts, so false remains valid until it does.
func (b *Bulkhead) isFull() bool { return b != nil && b.running.Load() >= b.limit }

// startable returns the index of the first pending delivery whose bulkhead is not full, or -1.
func (c *Consumer) startable(pending []*Delivery) int {
	for i, d := range pending {
		if c.Bulkheads && !d.sorted {
			d.read()
			d.sorted = true
			if d.Err == nil {
				d.bulkhead = c.owner.Bulkhead(d)
			}
		}
		if !d.bulkhead.isFull() {
			return i
		}
	}
	return -1
}

// slots limits the number of running attempts.
type slots struct {
	all  []slot
	free chan *slot
}

// slot is the permission to run one attempt at a time.
type slot struct {
	mu      sync.Mutex
	handled *Delivery // delivery that the handler is processing; nil: none
	body    []byte    // body of handled, which its owner may clear
}

// handle sets the delivery that the handler is processing.
func (x *slot) handle(d *Delivery, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handled, x.body = d, body
}

// running returns the delivery that the handler is processing, or nil.
func (x *slot) running() *Delivery {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.handled
}

func newSlots(n int) *slots {
	s := &slots{all: make([]slot, n), free: make(chan *slot, n)}
	for i := range s.all {
		s.free <- &s.all[i]
	}
	return s
}

// leave frees the slot of an attempt, or all slots if the attempt ran alone.
func (s *slots) leave(d *Delivery) {
	d.slot.handle(nil, nil)
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
			if d := s.all[i].running(); d != nil && !yield(d) {
				return
			}
		}
	}
}

// pauser admits attempts if the limiter and the breaker permit them, except during a pause.
type pauser struct {
	limiter Limiter // may be nil
	breaker Breaker // may be nil

	mu      sync.Mutex
	until   time.Time
	reason  error
	held    error         // reason for the hold; nil: not held
	closed  chan struct{} // closed during a pause
	changed chan struct{} // closed and replaced by hold
}

func newPauser(l Limiter, b Breaker) *pauser {
	return &pauser{limiter: l, breaker: b, closed: make(chan struct{}), changed: make(chan struct{})}
}

// unlimited is the remaining time of a pause without an end.
const unlimited = time.Duration(math.MaxInt64)

// hold pauses attempts until hold(nil) is called.
func (p *pauser) hold(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = reason
	close(p.changed)
	p.changed = make(chan struct{})
	if reason != nil {
		p.markPaused()
	}
}

// holdChanged returns a channel that the next call of hold closes.
func (p *pauser) holdChanged() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// markPaused closes the channel that the method paused returns. The caller must hold mu.
func (p *pauser) markPaused() {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
}

// pause pauses attempts for d. It does not shorten a longer pause.
func (p *pauser) pause(d time.Duration, reason error) {
	if d <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.until) {
		p.until, p.reason = until, reason
	}
	p.markPaused()
}

// paused returns a channel that is closed during a pause.
func (p *pauser) paused() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// remaining returns the remaining time of the pause and its reason, or 0 outside a pause.
func (p *pauser) remaining() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		return unlimited, p.held
	}
	if left := time.Until(p.until); left > 0 {
		return left, p.reason
	}
	select {
	case <-p.closed:
		p.closed = make(chan struct{})
	default:
	}
	return 0, nil
}

// enter admits one attempt. The caller passes the result of the attempt to record, unless record is nil. enter returns
// false during a pause, if the breaker requests a pause, and after ctx is done.
func (p *pauser) enter(ctx context.Context) (record func(error), ok bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	if left, _ := p.remaining(); left > 0 {
		return nil, false
	}
	if p.breaker == nil {
		return nil, true
	}
	wait, reason := faultPause, errBreakerOpen
	err := guard.Call("breaker", func() error {
		record, wait = p.breaker.Allow()
		return nil
	})
	if err != nil {
		reason = err
	}
	p.pause(wait, reason)
	return record, wait <= 0
}

// limit waits for the limiter's permit. A failure causes a pause of faultPause.
func (p *pauser) limit(ctx context.Context) bool {
	err := guard.Call("limiter", func() error { return p.limiter.Wait(ctx) })
	if err != nil && ctx.Err() == nil {
		p.pause(faultPause, err)
	}
	return err == nil
}

// tryLimit reports whether the limiter has issued a permit immediately. A goroutine for each attempt would cost more than the rest of
// the attempt.
func (p *pauser) tryLimit() (yes bool) {
	if l, ok := p.limiter.(trier); ok {
		_ = guard.Call("limiter", func() error { yes = l.TryWait(); return nil })
	}
	return yes
}

// release returns a permit of the limiter.
func (p *pauser) release() {
	if l, ok := p.limiter.(releaser); ok {
		_ = guard.Call("limiter", func() error { l.Done(); return nil })
	}
}

// probing reports whether the breaker allows only one attempt at a time. A failure causes a pause of faultPause.
func (p *pauser) probing() (yes bool) {
	if p.breaker == nil {
		return false
	}
	err := guard.Call("breaker", func() error {
		yes = p.breaker.Probing()
		return nil
	})
	if err != nil {
		p.pause(faultPause, err)
	}
	return yes
}
