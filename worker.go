package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// ErrNotConsuming is returned if a Worker does not consume, because it is trying to subscribe to its queue, or because
// Run was not called yet. The error string contains the reason.
var ErrNotConsuming = errors.New("reprise: not consuming")

// Worker consumes a queue, calls its handler with each message, and settles the message according to the result of the
// handler: see the package comment. A Worker is safe for concurrent use.
type Worker struct {
	client   *Client
	cfg      WorkerConfig // includes the defaults
	number   int          // number of the worker within its Client, from 1
	log      *slog.Logger
	handler  Handler // wrapped in its middleware
	lanes    map[*Route]*lane
	planner  planner
	consumer *consume.Consumer
	life     lifecycle
	member   *announce.Member // nil if the worker is not announced, or Run was not called
	held     held

	leaseQueue string // "": none

	inspected sync.Once // logRisks was called

	mu     sync.Mutex
	hung   error // ErrStillRunning if the broker has redelivered a message that a handler still processes
	status error // reason why the worker does not consume; nil if it consumes or pauses
	pause  error // reason for the pause; nil if the worker is not paused
}

// NewWorker validates cfg and returns a Worker. It does not send requests to the broker. Call Run to start the worker.
func NewWorker(c *Client, cfg WorkerConfig) (*Worker, error) {
	if c == nil {
		return nil, errors.New("reprise: NewWorker: client must not be nil (Dial returns one)")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	host, err := os.Hostname()
	if err != nil {
		host = "" // the host name is for information only
	}
	w := &Worker{
		client: c,
		cfg:    cfg,
		number: int(c.workers.Add(1)),
		log:    c.cfg.Logger.With("queue", cfg.Queue),
		life:   newLifecycle(),
		status: fmt.Errorf("%w: Run was not called", ErrNotConsuming),
	}
	err = guard.Call("middleware", func() error {
		w.handler = Chain(cfg.Handler, cfg.Middleware...)
		return nil
	})
	if err == nil && w.handler == nil {
		err = errors.New("reprise: WorkerConfig.Middleware must not return a nil Handler (return next, or a Handler that calls it)")
	}
	if err != nil {
		return nil, err
	}
	c.scheduled.exclude(cfg.Strategy.Route.Topology(cfg.Queue).NoSchedule)
	if mux, ok := cfg.Handler.(*Mux); ok {
		w.lanes = mux.lanes(cfg.Policy)
	}
	w.planner = newPlanner(&w.cfg, host, c.publishing.User)
	w.consumer = consume.New(w.consumption(), (*owner)(w))
	return w, nil
}

// consumption returns the part of the configuration that concerns consumption.
func (w *Worker) consumption() consume.Config {
	cfg := w.cfg
	c := consume.Config{
		Queue: cfg.Queue, Tag: w.client.cfg.Name, Marks: cfg.Strategy.Marks,
		Concurrency: cfg.Concurrency, Prefetch: cfg.Prefetch, Certain: cfg.certain(), Priority: cfg.Priority,
		CrashLimit: cfg.CrashLimit, Persistent: cfg.KeepDeclaring, Timeout: cfg.ConsumerTimeout, DrainTimeout: cfg.DrainTimeout,
		Limiter: cfg.Limiter, Breaker: cfg.Breaker,
		Link: w.client.consuming, Tasks: &w.client.tasks, Reconnect: w.client.cfg.Reconnect, Log: w.log,
	}
	c.Keyed, c.Lanes = w.keyed(), w.cfg.lanes()
	if cfg.Debounce != nil {
		c.Window = cfg.Debounce.Window
	}
	if cfg.Lease > 0 {
		c.Lease, c.LeaseQueue = cfg.Lease, cfg.leaseQueue()
		w.leaseQueue = c.LeaseQueue.Name
	}
	for _, l := range w.lanes {
		c.Bulkheads = c.Bulkheads || l.bulkhead != nil
	}
	return c
}

// Run declares the topology of the worker and consumes, across any number of reconnects, until ctx is canceled or Shutdown
// is called. Then it drains:
//
//   - The worker stops consuming, and requeues messages that it has not started.
//   - Running handlers may finish, for at most DrainTimeout, or until the context that was passed to Shutdown is done.
//   - Then the context of the handlers is canceled, and the handlers have another 5 s to return. A message whose
//     handler fails now is requeued, and the attempt does not count.
//
// Run returns nil after a complete drain. It returns ErrDrainTimeout if handlers were still running at the end of the
// drain; the broker redelivers their messages. It returns a *DeclareError if the broker refuses the topology, for
// example because it conflicts with existing objects, or if the queue is a stream, and ErrClosed if the client was closed. A second call returns an
// error.
func (w *Worker) Run(ctx context.Context) error {
	ctx, end, err := w.life.start(ctx)
	if err != nil || end == nil {
		return err
	}
	defer end()
	w.interrupt(fmt.Errorf("%w: Run has just started", ErrNotConsuming))
	if agent := w.client.agent; agent != nil && !w.cfg.AsDelivered {
		w.member, w.planner.announces = agent.Join(w.announced()), true
		defer agent.Leave(w.member)
	}
	defer (*owner)(w).Interrupted(ErrClosed, 0)
	err = w.consumer.Run(ctx, w.life.force)
	if errors.Is(err, consume.ErrStream) {
		return &DeclareError{Kind: "queue", Name: w.cfg.Queue, Advice: "a worker must not consume a stream", Err: err}
	}
	return err
}

// Shutdown makes Run drain and return, and waits for it until ctx is done. As with http.Server, ctx limits the time for
// running handlers. If ctx is done before the handlers have finished, and before the DrainTimeout, their context is
// canceled as after the DrainTimeout. Shutdown then returns the cause of ctx's cancellation, and Run returns when the
// handlers have returned, or after a few seconds. If ctx is never done, only the DrainTimeout applies. If ctx is
// already canceled, the context of the handlers is canceled immediately. Shutdown may be called any number of times. If
// Shutdown is called before Run, Run returns nil immediately.
func (w *Worker) Shutdown(ctx context.Context) error {
	if w.life.stop() {
		w.interrupt(ErrClosed)
	}
	return w.life.join(ctx)
}

// Healthy returns nil if the worker consumes, or pauses on purpose, and its Client is healthy. Otherwise it returns
// ErrNotConsuming or ErrCopyRefused with the reason, ErrClosed after the worker has stopped, or the error of Client.Healthy.
// ctx limits the request to the broker.
//
// Use it for a readiness probe. Do not use it for a liveness probe, which would restart the process while the broker is
// down, although the worker reconnects automatically.
func (w *Worker) Healthy(ctx context.Context) error {
	if err := w.Status().Err; err != nil {
		return err
	}
	return w.client.Healthy(ctx)
}

// Status is the state of a worker.
type Status struct {
	// Err is nil if the worker consumes, or pauses on purpose. Otherwise it is ErrNotConsuming with the reason, or ErrClosed
	// after the worker has stopped. If the worker holds messages that it can neither retry nor park, Err is ErrCopyRefused
	// with the reason, and if the broker has redelivered a message whose handler still runs, ErrStillRunning.
	Err error

	// Pause is the reason for the pause, or nil if the worker does not pause. A *PausedError means that an operator has
	// paused it.
	Pause error
}

// Status returns the state of the worker. Unlike Healthy, it does not send a request to the broker. Use it in a program with
// many workers and one Client.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{cmp.Or(w.status, w.held.err(), w.hung), w.pause}
}

// Check asks the broker whether the objects that the worker declares conflict with existing objects, and whether the user may
// create missing objects. It declares nothing. It returns the errors that Client.Declare would return.
func (w *Worker) Check(ctx context.Context) error {
	return w.client.declareOrCheck(ctx, w.client.consuming, w.cfg.topology(), true)
}

// Risks returns the ways in which the broker removes unprocessed messages from the existing work queue, because of arguments that
// another program or an operator has set, such as x-message-ttl: see topology.Queue. It changes nothing. Run logs the
// result once. Without Config.Inspect, or after its error, Risks needs the configure permission for the queue, and does not see
// policies.
func (w *Worker) Risks(ctx context.Context) ([]string, error) { return w.risks(ctx, true) }

func (w *Worker) risks(ctx context.Context, checkOnly bool) (risks []string, err error) {
	all := w.cfg.topology().Queues
	if w.cfg.OrderBy != nil || w.cfg.Lanes > 0 { // partitions and held queues, or lanes
		for _, q := range all {
			some, failed := w.queueRisks(ctx, q, checkOnly)
			risks, err = append(risks, some...), cmp.Or(err, failed)
		}
		slices.Sort(risks)
		return slices.Compact(risks), err
	}
	own := topology.Queue{Name: w.cfg.Queue}
	for _, q := range all {
		if q.Name == w.cfg.Queue {
			own = q
		}
	}
	return w.queueRisks(ctx, own, checkOnly)
}

func (w *Worker) queueRisks(ctx context.Context, own topology.Queue, checkOnly bool) (risks []string, err error) {
	if inspect := w.client.cfg.Inspect; inspect != nil {
		err = guard.Call("function Inspect", func() error {
			q, err := inspect(ctx, own.Name)
			risks = newRisks(q, own)
			return err
		})
		if err == nil {
			return risks, nil
		}
		w.log.Debug("cannot inspect the work queue", "error", err)
	}
	err = w.client.declaration(ctx, w.client.consuming, checkOnly, func(ctx context.Context, d *declaration) error {
		risks, err = d.risks(ctx, own)
		return err
	})
	return risks, err
}

// logRisks logs the risks of the work queue.
func (w *Worker) logRisks(ctx context.Context) {
	risks, err := w.risks(ctx, false)
	if err != nil {
		w.log.Debug("cannot read the arguments of the work queue", "error", err)
	}
	if len(risks) > 0 {
		w.log.Warn("work queue can lose messages", "risks", strings.Join(risks, "; "))
	}
}

func (w *Worker) interrupt(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status, w.pause = err, nil
}

// announced returns the worker's data for operators, and the function that pauses the worker.
func (w *Worker) announced() announce.Worker {
	announced := announce.Worker{
		Queue: w.cfg.Queue, Concurrency: w.cfg.Concurrency,
		Hold: func(p *protocol.Pause) {
			if p == nil {
				w.consumer.Hold(nil)
				return
			}
			e := PausedError(*p)
			w.consumer.Hold(&e)
		},
		Handling: func(yield func(protocol.Handling) bool) {
			for d := range w.consumer.Running() {
				own := d.Owned.(*delivery)
				if !yield(protocol.Handling{MessageID: d.MessageID, Attempt: d.Attempt, Since: d.Began, Progress: own.progress.Load()}) {
					return
				}
			}
		},
	}
	if w.cfg.OrderBy != nil {
		announced.Keys = func(ctx context.Context) protocol.Keys { return w.consumer.Keys(ctx, protocol.MaxBlocked) }
	}
	return announced
}

// owner implements the callbacks of the Consumer for a Worker.
type owner Worker

func (o *owner) Declare(ctx context.Context) (permanent bool, err error) {
	if err = (*Worker)(o).joinMembers(ctx); err == nil {
		err = o.client.declare(ctx, o.client.consuming, o.cfg.topology())
	}
	if err == nil && o.member != nil {
		if conn, err := o.client.consuming.Get(ctx); err == nil { // on an error, the consumer cannot consume either
			o.client.agent.Check(ctx, conn, o.member)
		}
	}
	if err == nil && !o.cfg.AsDelivered {
		o.inspected.Do(func() {
			_ = o.client.tasks.Go(func() { (*Worker)(o).logRisks(ctx) }) // fails only if the client is closed
		})
	}
	_, permanent = errors.AsType[*DeclareError](err)
	return permanent && !o.cfg.KeepDeclaring, err
}

func (o *owner) New() *consume.Delivery {
	d := &delivery{}
	d.Owned = d
	return &d.Delivery
}

func (o *owner) Key(d *consume.Delivery) (key string, err error) {
	w := (*Worker)(o)
	err = guard.Call("debounce key", func() error {
		m := w.message(w.arrived(d))
		key = w.cfg.Debounce.Key(&m)
		return nil
	})
	return key, err
}

func (o *owner) Bulkhead(d *consume.Delivery) *consume.Bulkhead {
	w := (*Worker)(o)
	if l := w.laneOf(w.arrived(d)); l != nil {
		return l.bulkhead
	}
	return nil
}

func (o *owner) Handle(ctx context.Context, d *consume.Delivery) {
	w := (*Worker)(o)
	w.handle(ctx, w.arrived(d))
}

func (o *owner) Consuming() {
	w := (*Worker)(o)
	w.observe(Event{Kind: EventConsuming})
	w.interrupt(nil)
	if w.member != nil {
		w.member.Consuming()
	}
}

func (o *owner) Interrupted(err error, delay time.Duration) {
	w := (*Worker)(o)
	if err != ErrClosed {
		err = fmt.Errorf("%w: %w", ErrNotConsuming, err)
	}
	w.interrupt(err)
	o.Repeated(0) // the broker redelivers the messages
	w.observe(Event{Kind: EventInterrupted, Err: err, Delay: delay})
	if w.member != nil {
		w.member.Interrupted(err)
	}
}

func (o *owner) Paused(d time.Duration, reason error) {
	w := (*Worker)(o)
	w.observe(Event{Kind: EventPaused, Delay: d, Err: reason})
	w.mu.Lock()
	w.status, w.pause = nil, cmp.Or(reason, errPaused) // a pause is intended, and also replaces an earlier interruption
	w.mu.Unlock()
	if w.member != nil {
		_, byOperator := errors.AsType[*PausedError](reason)
		w.member.Paused(d, reason, byOperator)
	}
}

func (o *owner) Resumed() {
	w := (*Worker)(o)
	w.observe(Event{Kind: EventResumed})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = nil
}

func (o *owner) Repeated(n int) {
	w := (*Worker)(o)
	var err error
	if n > 0 {
		err = fmt.Errorf("%w (%d messages, longer than the acknowledgement timeout)", ErrStillRunning, n)
	}
	w.mu.Lock()
	w.hung = err
	w.mu.Unlock()
	w.reportHolding()
}

// reportHolding reports to operators whether the worker holds messages. It keeps w.mu, so that the newest reason is reported
// last.
func (w *Worker) reportHolding() {
	if w.member == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	reason := ""
	if err := cmp.Or(w.held.err(), w.hung); err != nil {
		reason = err.Error()
	}
	w.member.Holding(reason)
}

func (o *owner) TimeoutNear(d *consume.Delivery, held time.Duration) {
	w := (*Worker)(o)
	w.log.Warn("consumer timeout is near", "message_id", d.MessageID, "attempt", d.Attempt,
		"held", held, "timeout", w.cfg.ConsumerTimeout)
	w.observe(Event{Kind: EventTimeoutNear, MessageID: d.MessageID, Attempt: d.Attempt, Took: held})
}

// lifecycle manages a task that runs once and that another goroutine can stop.
type lifecycle struct {
	mu      sync.Mutex
	started bool
	stopped bool                    // stopped before the start
	cancel  context.CancelCauseFunc // cancels the context of the task
	force   chan struct{}           // closed when a caller of join stops waiting
	forced  bool
	joined  chan struct{} // closed when the task has returned
}

func newLifecycle() lifecycle {
	return lifecycle{force: make(chan struct{}), joined: make(chan struct{})}
}

// start returns the context of the task, and a function that the task calls before it returns. The function is nil if
// the task was stopped before the start.
func (l *lifecycle) start(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
		return nil, nil, nil
	case l.started:
		return nil, nil, errors.New("reprise: Worker.Run must not be called twice (create another Worker)")
	}
	l.started = true
	ctx, l.cancel = context.WithCancelCause(ctx)
	return ctx, func() { l.cancel(nil); close(l.joined) }, nil
}

// stop cancels the context of the task. It returns true if the task was not started. The task then never starts.
func (l *lifecycle) stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		l.cancel(ErrClosed)
		return false
	}
	if !l.stopped {
		l.stopped = true
		close(l.joined)
	}
	return true
}

// join waits until the task has returned. If ctx is done first, join closes force and returns the cause.
func (l *lifecycle) join(ctx context.Context) error {
	select {
	case <-l.joined:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forced {
		l.forced = true
		close(l.force)
	}
	return context.Cause(ctx)
}
