package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/topology"
)

// ErrNotConsuming says that a Worker has no consumer: it is trying to get one, or Run
// was not called yet. The text says which.
var ErrNotConsuming = errors.New("reprise: not consuming")

// Worker consumes one queue, runs its handler for each message, and settles the
// message by what the handler returned: see the package comment. Its methods are safe
// for concurrent use.
type Worker struct {
	client   *Client
	cfg      WorkerConfig // with defaults
	number   int          // among its Client's
	log      *slog.Logger
	host     string  // recorded with errors
	handler  Handler // in its middleware
	consumer *consume.Consumer
	life     lifecycle
	member   *announce.Member // nil: it is not announced, or Run was not called

	mu     sync.Mutex
	status error // why it does not consume; nil if it does, or pauses
	pause  error // why it pauses; nil: it does not
}

// NewWorker checks cfg and returns a worker for Run to start. It does not talk
// to the broker.
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
		host = "" // it is for information only
	}
	w := &Worker{
		client: c,
		cfg:    cfg,
		number: int(c.workers.Add(1)),
		log:    c.cfg.Logger.With("queue", cfg.Queue),
		host:   host,
		life:   newLifecycle(),
		status: fmt.Errorf("%w: Run was not called", ErrNotConsuming),
	}
	err = guard.Call("middleware", func() error {
		w.handler = Chain(cfg.Handler, cfg.Middleware...)
		return nil
	})
	if err == nil && w.handler == nil {
		err = errors.New("reprise: WorkerConfig.Middleware returned a nil Handler: return the one that was given, or one around it")
	}
	if err != nil {
		return nil, err
	}
	w.consumer = consume.New(w.consumption(), (*owner)(w))
	return w, nil
}

// consumption is the part of the configuration that is about consuming.
func (w *Worker) consumption() consume.Config {
	cfg := w.cfg
	c := consume.Config{
		Queue: cfg.Queue, Tag: w.client.cfg.Name, Marks: cfg.Strategy.Marks,
		Concurrency: cfg.Concurrency, Prefetch: cfg.Prefetch, Certain: cfg.certain(), Priority: cfg.Priority,
		CrashLimit: cfg.CrashLimit, Timeout: cfg.ConsumerTimeout, DrainTimeout: cfg.DrainTimeout,
		Limiter: cfg.Limiter, Breaker: cfg.Breaker,
		Link: w.client.consuming, Tasks: &w.client.tasks, Reconnect: w.client.cfg.Reconnect, Log: w.log,
	}
	if cfg.Debounce != nil {
		c.Window = cfg.Debounce.Window
	}
	return c
}

// Run declares what the worker needs and consumes, over any number of
// reconnects, until ctx is cancelled or Shutdown is called. Then it drains:
//
//   - it stops consuming, and gives back what was not started, untouched;
//   - running handlers may finish, for up to DrainTimeout, or until the context
//     given to Shutdown ends;
//   - then their context ends, and they have 5 s more. What fails now is given
//     back without counting as an attempt.
//
// Run returns nil after a drain, ErrDrainTimeout if handlers were still running
// at the end of it (their messages are delivered again), a *DeclareError if the
// topology contradicts what exists, ErrClosed if the client was closed. It can
// be called once.
func (w *Worker) Run(ctx context.Context) error {
	ctx, end, err := w.life.start(ctx)
	if err != nil || end == nil {
		return err
	}
	defer end()
	w.interrupt(fmt.Errorf("%w: Run has just begun", ErrNotConsuming))
	if agent := w.client.agent; agent != nil && !w.cfg.AsDelivered {
		w.member = agent.Join(w.announced())
		defer agent.Leave(w.member)
	}
	defer (*owner)(w).Interrupted(ErrClosed, 0)
	return w.consumer.Run(ctx, w.life.force)
}

// Shutdown makes Run drain and return, and waits for it until ctx ends. As with
// http.Server, that is how long handlers may take: when ctx ends before they have
// finished, and before the DrainTimeout is over, their context ends as it would after
// the DrainTimeout. Shutdown returns the cause of ctx then, and Run within the next
// seconds, when they have ended. A ctx that does not end leaves it at the DrainTimeout;
// one that has ended lets nothing finish. Shutdown may be called any number of times,
// also before Run, which then does nothing.
func (w *Worker) Shutdown(ctx context.Context) error {
	if w.life.stop() {
		w.interrupt(ErrClosed)
	}
	return w.life.join(ctx)
}

// Healthy returns nil if the worker consumes, or pauses on purpose, and its
// Client is healthy; else what is wrong: ErrNotConsuming with the reason,
// ErrClosed when it has ended, or what Client.Healthy returns. ctx bounds the
// question to the broker.
//
// It suits a readiness probe. As a liveness probe it would restart the process
// for a broker that is down, which does not help: the worker reconnects.
func (w *Worker) Healthy(ctx context.Context) error {
	if err := w.Consuming(); err != nil {
		return err
	}
	return w.client.Healthy(ctx)
}

// Consuming is Healthy without a broker round trip: nil if the worker consumes,
// or pauses on purpose; ErrNotConsuming with the reason; ErrClosed when it has
// ended. For a program with many workers and one Client.
func (w *Worker) Consuming() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Paused returns why the worker pauses, and nil if it does not. A *PausedError means that an
// operator has paused it. A worker that pauses is healthy: Consuming returns nil.
func (w *Worker) Paused() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pause
}

func (w *Worker) interrupt(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status, w.pause = err, nil
}

// announced returns what operators may know of the worker.
func (w *Worker) announced() announce.Worker {
	return announce.Worker{
		Queue: w.cfg.Queue, Concurrency: w.cfg.Concurrency,
		Hold: func(p *topology.Pause) {
			if p == nil {
				w.consumer.Hold(nil)
				return
			}
			w.consumer.Hold(&PausedError{*p})
		},
		Handling: func(yield func(topology.Handling) bool) {
			for d := range w.consumer.Running() {
				if !yield(topology.Handling{MessageID: d.MessageID, Attempt: d.Attempt, Since: d.Began}) {
					return
				}
			}
		},
	}
}

// announceRetry tells operators that a message waits.
func (w *Worker) announceRetry(d *delivery, c *replacement) {
	if c.hop.Delay < topology.MinReportedRetry {
		return
	}
	f := &c.failure
	x := topology.Retry{MessageID: c.messageID(d), Attempt: f.Attempt, Failed: f.Time, Due: time.Now().Add(c.hop.Delay), Error: f.Error}
	_ = guard.Call("strategy", func() error { // else the queue is not known
		x.Wait = w.cfg.Strategy.WaitingIn(d.At, c.hop)
		return nil
	})
	w.member.Retrying(x)
}

// tally counts an event for operators.
func (w *Worker) tally(e *Event) {
	switch m := w.member; e.Kind {
	case EventHandled:
		m.Took(e.Took)
		if e.Err != nil {
			m.Failed.Add(1)
		}
	case EventDone:
		m.Succeeded.Add(1)
	case EventRetried:
		m.Retried.Add(1)
	case EventParked:
		m.Parked.Add(1)
	}
}

// observe tells the observer, if there is one.
func (w *Worker) observe(e Event) {
	if w.member != nil {
		w.tally(&e)
	}
	if o := w.client.cfg.Observer; o != nil {
		e.Queue, e.Worker, e.AsDelivered = w.cfg.Queue, w.number, w.cfg.AsDelivered
		o.Observe(e)
	}
}

// owner is a Worker as its Consumer sees it.
type owner Worker

func (o *owner) Declare(ctx context.Context) (permanent bool, err error) {
	err = o.client.declare(ctx, o.client.consuming, o.cfg.topology())
	if err == nil && o.member != nil {
		if conn, err := o.client.consuming.Get(ctx); err == nil { // else there is nothing to consume on
			o.client.agent.Check(ctx, conn, o.member)
		}
	}
	_, permanent = errors.AsType[*DeclareError](err)
	return permanent, err
}

func (o *owner) New() *consume.Delivery {
	d := &delivery{}
	d.Owned = d
	return &d.Delivery
}

func (o *owner) Key(d *consume.Delivery) (key string, err error) {
	w := (*Worker)(o)
	err = guard.Call("debounce key", func() error {
		m := w.message(owned(d))
		key = w.cfg.Debounce.Key(&m)
		return nil
	})
	return key, err
}

func (o *owner) Handle(ctx context.Context, d *consume.Delivery) { (*Worker)(o).handle(ctx, owned(d)) }

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
	w.observe(Event{Kind: EventInterrupted, Err: err, Delay: delay})
	if w.member != nil {
		w.member.Interrupted(err)
	}
}

func (o *owner) Paused(d time.Duration, reason error) {
	w := (*Worker)(o)
	w.observe(Event{Kind: EventPaused, Delay: d, Err: reason})
	w.mu.Lock()
	w.status, w.pause = nil, cmp.Or(reason, errPaused) // on purpose, also where it was interrupted before
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

func (o *owner) TimeoutNear(d *consume.Delivery, held time.Duration) {
	w := (*Worker)(o)
	w.log.Warn("consumer timeout is near", "message_id", d.MessageID, "attempt", d.Attempt,
		"held", held, "timeout", w.cfg.ConsumerTimeout)
	w.observe(Event{Kind: EventTimeoutNear, MessageID: d.MessageID, Attempt: d.Attempt, Took: held})
}

// lifecycle is that of a task that runs once and is stopped from another goroutine.
type lifecycle struct {
	mu      sync.Mutex
	started bool
	stopped bool                    // before it was started
	cancel  context.CancelCauseFunc // of its context
	force   chan struct{}           // closed when nobody waits for its end any more
	forced  bool
	joined  chan struct{} // closed when it has ended
}

func newLifecycle() lifecycle {
	return lifecycle{force: make(chan struct{}), joined: make(chan struct{})}
}

// start returns the context of the task, and the function that it calls at its end: nil
// if it was stopped before it has started.
func (l *lifecycle) start(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
		return nil, nil, nil
	case l.started:
		return nil, nil, errors.New("reprise: Worker.Run can be called once: make another worker")
	}
	l.started = true
	ctx, l.cancel = context.WithCancelCause(ctx)
	return ctx, func() { l.cancel(nil); close(l.joined) }, nil
}

// stop ends the context of the task. It reports whether that had not started, and never
// will.
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

// join waits for the end of the task. If ctx ends first it closes force.
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
