package reprisetest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// Attempt is one run of a handler.
type Attempt struct {
	Message *reprise.Message // what the handler was given
	Err     error            // what it returned; a *reprise.PanicError if it panicked
	Began   time.Time
	Took    time.Duration
}

// Attempts are attempts in the order in which they ended.
type Attempts []Attempt

// Of returns the attempts at one message, or at all with its id.
func (a Attempts) Of(messageID string) Attempts {
	return slices.DeleteFunc(slices.Clone(a), func(x Attempt) bool { return x.Message.MessageID != messageID })
}

// Delays returns how long each attempt came after the one before it at the same
// message, from the end of the one to the beginning of the other; the first
// attempts at messages are left out. Messages are told apart by their id.
func (a Attempts) Delays() []time.Duration {
	ended := make(map[string]time.Time)
	var delays []time.Duration
	for _, x := range a {
		id := x.Message.MessageID
		if last, again := ended[id]; again {
			delays = append(delays, x.Began.Sub(last))
		}
		ended[id] = x.Began.Add(x.Took)
	}
	return delays
}

// Errors returns what the attempts returned.
func (a Attempts) Errors() []error {
	errs := make([]error, len(a))
	for i, x := range a {
		errs[i] = x.Err
	}
	return errs
}

// Worker is a worker whose attempts are recorded. Its methods are safe for
// concurrent use.
type Worker struct {
	broker *Broker
	queue  string
	worker *reprise.Worker
	ran    chan struct{} // closed when Run has returned
	err    error         // what it returned

	mu       sync.Mutex
	attempts Attempts
	stopped  bool
}

// Work runs a worker, with a client of its own, until t ends or [Worker.Stop] is
// called, and returns when it consumes. Middleware of the config is inside of
// what is recorded: an attempt is what the worker takes for one.
func (b *Broker) Work(t TB, config reprise.WorkerConfig) *Worker {
	t.Helper()
	return b.WorkWith(t, b.Client(t, nil), config)
}

// WorkWith is Work with a client from [Broker.Client], for a test of what depends
// on its settings, or on several workers that have one in common.
func (b *Broker) WorkWith(t TB, client *reprise.Client, config reprise.WorkerConfig) *Worker {
	t.Helper()
	w := &Worker{broker: b, queue: config.Queue, ran: make(chan struct{})}
	config.Middleware = slices.Concat([]reprise.Middleware{w.record}, config.Middleware)
	var err error
	if w.worker, err = reprise.NewWorker(client, config); err != nil {
		t.Fatalf("reprisetest: %v", err)
	}
	b.mu.Lock()
	b.strategies[config.Queue] = config.Strategy
	b.mu.Unlock()
	before := b.consumers(w.queue)
	go func() {
		defer close(w.ran)
		w.err = w.worker.Run(context.Background())
		b.stir()
	}()
	b.mu.Lock()
	b.workers = append(b.workers, w)
	b.mu.Unlock()
	t.Cleanup(func() {
		b.Heal() // or it could not come to an end
		w.cleanup(t)
	})
	if !b.await(func() (bool, time.Time) { return w.isOver() || b.consumers(w.queue) > before, time.Time{} }) {
		t.Fatalf("reprisetest: the worker of %q does not consume after %s", w.queue, b.config.Patience)
	}
	if w.isOver() {
		t.Fatalf("reprisetest: the worker of %q has ended: %v", w.queue, w.err)
	}
	return w
}

// record is the outermost middleware.
func (w *Worker) record(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) (err error) {
		given := *m // a handler may change its own, and what is in it
		given.Body, given.Headers = bytes.Clone(m.Body), maps.Clone(m.Headers)
		began := time.Now()
		err = reprise.ErrHandlerExited // stands when it leaves through runtime.Goexit
		defer func() {
			if v := recover(); v != nil {
				err = &reprise.PanicError{Value: v, Stack: debug.Stack()}
			}
			w.add(Attempt{Message: &given, Err: err, Began: began, Took: time.Since(began)})
		}()
		return next.Handle(ctx, m)
	})
}

func (w *Worker) add(a Attempt) {
	w.mu.Lock()
	w.attempts = append(w.attempts, a)
	w.mu.Unlock()
	w.broker.stir()
}

// Attempts returns the attempts that have ended so far.
func (w *Worker) Attempts() Attempts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.attempts)
}

// Await waits until n attempts have ended, and in a bubble until all that follows
// at once from the last one has been done: then it has been settled, unless a
// fault keeps it from that. The test fails if that takes longer than
// Config.Patience.
func (w *Worker) Await(t TB, n int) Attempts {
	t.Helper()
	var got Attempts
	if !w.broker.await(func() (bool, time.Time) { got = w.Attempts(); return len(got) >= n, time.Time{} }) {
		t.Fatalf("reprisetest: after %s there were %d attempts at messages of %q, not %d", w.broker.config.Patience, len(got), w.queue, n)
	}
	return got
}

// Stop has the worker drain, as at the end of a program, waits for that, and
// returns what its Run returned. Messages that are left in its queue then count
// as at rest.
func (w *Worker) Stop() error {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	return w.end(context.Background()) // its drain has limits
}

// end has the worker drain, and returns what its Run returned, or that ctx has
// ended before.
func (w *Worker) end(ctx context.Context) error {
	_ = w.worker.Shutdown(ctx)
	select {
	case <-w.ran:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if w.broker.consumers(w.queue) == 0 {
		w.broker.forget(place{"/", w.queue})
	}
	return w.err
}

func (w *Worker) cleanup(t TB) {
	w.mu.Lock()
	stopped := w.stopped
	w.mu.Unlock()
	switch err := w.end(context.Background()); {
	case err == nil || stopped:
	case errors.Is(err, reprise.ErrDrainTimeout):
		t.Errorf("reprisetest: a handler of %q is still running at the end of the test, although its context has ended", w.queue)
	default:
		t.Errorf("reprisetest: the worker of %q: %v", w.queue, err)
	}
}

func (w *Worker) isOver() bool {
	select {
	case <-w.ran:
		return true
	default:
		return false
	}
}

// consumers is how many a queue has.
func (b *Broker) consumers(queue string) int {
	q, _ := b.inside.Queue("/", queue)
	return q.Consumers
}
