package reprise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Handler does the work a message asks for.
//
// What Handle returns decides what becomes of the message:
//
//	nil                  done: acknowledged
//	RetryAfter(d, err)   comes back after d
//	PauseFor(d, err)     comes back after d, and until then the worker consumes nothing
//	Park(err)            parked now
//	other errors         comes back after the Policy's delay
//	panic, Goexit        as other errors
//
// and when no attempt is left, it is parked instead of coming back.
//
// ctx ends when a shutdown has waited long enough (DrainTimeout, or the end of the
// context given to Shutdown); an attempt that then fails
// does not count. It goes on when the connection is lost: the message is delivered
// again, but work that was begun is better done than left half done. It carries the
// values of the context given to Run. Handle is
// called from Concurrency goroutines at once. A message may be delivered more
// than once even if its handler succeeded (the connection may be lost before
// the broker hears of it): MessageID tells duplicates.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// Worker consumes one queue, runs its handler for each message, and settles the
// message by what the handler returned: see the package comment. Its methods are safe
// for concurrent use.
type Worker struct {
	client *Client
	cfg    WorkerConfig // with defaults
	number int          // among its Client's
	log    *slog.Logger
	host   string // recorded with errors

	handler  Handler // in its middleware
	slots    *slots
	gate     *gate
	debounce *debouncer     // or nil
	attempts sync.WaitGroup // handlers, and the settling after them
	swap     way            // a delivery for its copy, in the Order that is wanted
	status   status

	state    atomic.Int32    // idle, then running or cancelled
	stopping context.Context // ends with Shutdown
	stop     context.CancelFunc
	hurrying context.Context // ends with the context of a Shutdown
	hurry    context.CancelFunc
	done     chan struct{} // closed when Run has returned

	// Set by Run. A drain ends handling first, and settling when it gives up.
	handling    context.Context
	endHandling context.CancelCauseFunc
	settling    context.Context
	endSettling context.CancelCauseFunc
}

// States of a Worker.
const (
	workerIdle      int32 = iota
	workerRunning         // Run was called
	workerCancelled       // Shutdown came first: never to be run
)

// NewWorker checks cfg and returns a worker for Run to start. It does not talk
// to the broker.
func NewWorker(c *Client, cfg WorkerConfig) (*Worker, error) {
	if c == nil {
		return nil, errors.New("reprise: NewWorker needs a Client: Dial returns one")
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
		slots:  newSlots(cfg.Concurrency),
		gate:   newGate(cfg.Limiter, cfg.Breaker),
		done:   make(chan struct{}),
	}
	err = guard("middleware", func() error {
		w.handler = Chain(cfg.Handler, cfg.Middleware...)
		return nil
	})
	if err == nil && w.handler == nil {
		err = errors.New("reprise: WorkerConfig.Middleware returned a nil Handler: return the one that was given, or one around it")
	}
	if err != nil {
		return nil, err
	}
	if cfg.Debounce != nil {
		w.debounce = newDebouncer(w, *cfg.Debounce)
	}
	w.swap = w.publishThenAck
	if cfg.Order == AckThenPublish {
		w.swap = w.ackThenPublish
	}
	w.status.set(fmt.Errorf("%w: Run was not called", ErrNotConsuming))
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.hurrying, w.hurry = context.WithCancel(context.Background())
	return w, nil
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
	if !w.state.CompareAndSwap(workerIdle, workerRunning) {
		if w.state.Load() == workerCancelled {
			return nil
		}
		return errors.New("reprise: Worker.Run can be called once: make another worker")
	}
	defer close(w.done)
	w.status.set(fmt.Errorf("%w: Run has just begun", ErrNotConsuming))
	defer w.interrupted(ErrClosed, 0)

	values := context.WithoutCancel(ctx)
	w.handling, w.endHandling = context.WithCancelCause(values)
	w.settling, w.endSettling = context.WithCancelCause(values)
	defer w.endHandling(ErrClosed)
	defer w.endSettling(ErrClosed)

	consuming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.stopping, func() { cancel(ErrClosed) })()

	last, err := w.consume(consuming)
	return errors.Join(err, w.drain(last))
}

// Shutdown makes Run drain and return, and waits for it until ctx ends. As with
// http.Server, that is how long handlers may take: when ctx ends before they have
// finished, and before the DrainTimeout is over, their context ends as it would after
// the DrainTimeout. Shutdown returns the cause of ctx then, and Run within the next
// seconds, when they have ended. A ctx that does not end leaves it at the DrainTimeout;
// one that has ended lets nothing finish. Shutdown may be called any number of times,
// also before Run, which then does nothing.
func (w *Worker) Shutdown(ctx context.Context) error {
	w.stop()
	if w.state.CompareAndSwap(workerIdle, workerCancelled) {
		w.status.set(ErrClosed)
		close(w.done)
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		w.hurry()
		return context.Cause(ctx)
	}
}

// lastGrace is how long a drain waits for handlers whose context it has ended,
// and for what they settle.
const lastGrace = 5 * time.Second

// drain waits for running handlers and closes the last session, which may be
// nil.
func (w *Worker) drain(last *session) error {
	idle := make(chan struct{})
	go func() { // ends with the last handler
		w.attempts.Wait()
		close(idle)
	}()
	within := func(d time.Duration, cut <-chan struct{}) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-idle:
			return true
		case <-timer.C:
		case <-cut:
		}
		return false
	}
	drained := within(w.cfg.DrainTimeout, w.hurrying.Done())
	if !drained {
		w.log.Warn("drain timeout", "running", w.slots.taken())
		w.endHandling(ErrDrainTimeout)
		drained = within(lastGrace, nil)
	}
	if last != nil {
		last.close(lastGrace)
	}
	w.endSettling(ErrClosed)
	if !drained {
		drained = within(lastGrace, nil) // copies still under way give up
	}
	if !drained {
		return ErrDrainTimeout
	}
	return nil
}
