package reprise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Batch returns a Handler that collects messages and passes them to f together, for example for one bulk insert. It calls f
// with n messages, or with fewer when the first of them has waited for the given time, or when the worker drains. f returns
// an error for each message, in the same order, or nil if all messages are processed. Each message is one attempt, and is
// settled by its own error, as the Handler documents. Decode decodes the body of a message in f.
//
//	reprise.Batch(100, time.Second, func(ctx context.Context, batch []*reprise.Delivery) []error {
//		if err := insert(ctx, batch); err != nil {
//			return slices.Repeat([]error{err}, len(batch))
//		}
//		return nil
//	})
//
// If f returns another number of errors, panics or exits its goroutine, all messages fail. f may have processed some of them,
// so they must be protected from duplicates like other messages.
//
// Each message of a batch occupies one of the Concurrency slots. With a Concurrency of n, which is the default and the
// minimum, f runs once at a time and receives the messages in the order of the queue. With a Concurrency of 2n, two calls of f
// run at the same time. While f cannot run, the next batch grows to n messages.
//
// A Policy, a Limiter, and middleware around Batch apply to each message; f receives the context of the first message. A
// Timeout around Batch includes the time of collection. Batch can also be the Handler of a Route, which shares the slots of
// the worker with other Routes. If other functions wrap it, NewWorker cannot check the Concurrency, and a batch has at most as
// many messages as the worker has slots. Each worker needs its own Batch.
func Batch(n int, wait time.Duration, f func(ctx context.Context, batch []*Delivery) []error) Handler {
	if f == nil {
		return HandlerFunc(nil) // NewWorker refuses a nil HandlerFunc
	}
	return &batcher{size: n, wait: wait, f: f}
}

type batcher struct {
	size int
	wait time.Duration
	f    func(ctx context.Context, batch []*Delivery) []error

	mu   sync.Mutex
	open *batch        // accepts messages; nil if the next message opens another
	runs chan struct{} // has a token for each running call of f
}

// batch is a set of messages for one call of f. The goroutine of the first message calls f.
type batch struct {
	members []*batched    // guarded by batcher.mu while the batch is open
	full    chan struct{} // closed when the last message has arrived
	done    chan struct{} // closed when each member has its error
}

// batched is a message in a batch.
type batched struct {
	message *Delivery
	arrived *delivery // nil without a worker
	err     error
}

// Handle adds the message to a batch and returns its error.
func (x *batcher) Handle(ctx context.Context, m *Delivery) error {
	own := &batched{message: m}
	own.arrived, _ = ctx.Value(progressKey{}).(*delivery)
	b, first := x.join(own)
	if !first {
		<-b.done
		return own.err
	}
	if err := x.collect(ctx, b, own); err != nil {
		b.end(nil, err)
		return own.err
	}
	defer func() { <-x.runs }()
	b.run(ctx, x.f)
	return own.err
}

// join adds a message to the open batch, and closes the batch if it is full. The first message opens a batch.
func (x *batcher) join(m *batched) (b *batch, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.runs == nil {
		x.runs = make(chan struct{}, x.parallel(m.arrived))
	}
	if b = x.open; b == nil {
		first = true
		b = &batch{full: make(chan struct{}), done: make(chan struct{}), members: make([]*batched, 0, max(1, x.size))}
		x.open = b
	}
	if b.members = append(b.members, m); len(b.members) >= x.size {
		x.open = nil
		close(b.full)
	}
	return b, first
}

// parallel returns the number of calls of f that may run at the same time.
func (x *batcher) parallel(d *delivery) int {
	if d == nil {
		return 1
	}
	slots := d.Concurrency()
	if d.lane != nil && d.lane.route.Concurrency > 0 {
		slots = min(slots, d.lane.route.Concurrency)
	}
	return max(1, slots/max(1, x.size))
}

// collect waits until f may run for the batch of its first member, and closes the batch. It returns the cause if ctx is done
// before that. Until f may run, further messages join the batch.
func (x *batcher) collect(ctx context.Context, b *batch, first *batched) error {
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.open == b {
			x.open = nil
		}
	}()
	timer := time.NewTimer(x.wait)
	defer timer.Stop()
	var draining <-chan struct{}
	if first.arrived != nil {
		draining = first.arrived.Draining()
	}
	select {
	case <-b.full:
	case <-timer.C:
	case <-draining:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case x.runs <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run calls f and sets the error of each member.
func (b *batch) run(ctx context.Context, f func(ctx context.Context, batch []*Delivery) []error) {
	// Attempts start in the order of the queue, but their goroutines reach the batch in any order.
	slices.SortStableFunc(b.members, func(x, y *batched) int {
		if x.arrived == nil || y.arrived == nil {
			return 0
		}
		return x.arrived.Compare(&y.arrived.Delivery)
	})
	messages := make([]*Delivery, len(b.members))
	for i, m := range b.members {
		messages[i] = m.message
	}
	failure := ErrHandlerExited // remains set if f calls runtime.Goexit
	var errs []error
	defer func() {
		if v := recover(); v != nil {
			failure = &PanicError{Value: v, Stack: debug.Stack()}
		}
		b.end(errs, failure)
	}()
	errs = f(ctx, messages)
	if failure = nil; errs != nil && len(errs) != len(messages) {
		failure = fmt.Errorf("reprise: the function of Batch must return nil or an error for each message: got %d errors for %d messages", len(errs), len(messages))
	}
}

// end sets the error of each member: failure if it is not nil, and otherwise the element of errs, if there is one.
func (b *batch) end(errs []error, failure error) {
	for i, m := range b.members {
		if m.err = failure; failure == nil && errs != nil {
			m.err = errs[i]
		}
	}
	close(b.done)
}

// validate reports an invalid size or time. The argument timeout is the time after which the worker requeues messages.
func (x *batcher) validate(timeout time.Duration) error {
	var errs []error
	if x.size < 1 {
		errs = append(errs, fmt.Errorf("reprise: the size of a Batch must be positive: got %d", x.size))
	}
	if x.size > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("reprise: the size of a Batch must be at most %d: got %d", math.MaxUint16, x.size))
	}
	if x.wait <= 0 || x.wait > timeout/2 {
		errs = append(errs, fmt.Errorf("reprise: the time of a Batch must be positive and at most %s, half of the time after which deliveries are requeued: got %s (see ConsumerTimeout)", timeout/2, x.wait))
	}
	return errors.Join(errs...)
}

// largestBatch returns the size of the largest batch that a handler collects, if it is visible.
func largestBatch(h Handler) (n int) {
	switch x := h.(type) {
	case *batcher:
		return x.size
	case *Mux:
		if x == nil {
			return 0
		}
		for _, r := range x.Routes {
			n = max(n, largestBatch(r.Handler))
		}
	}
	return n
}
