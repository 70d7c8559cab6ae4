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
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// Attempt is an attempt to process a message: one run of the handler with its middleware.
type Attempt struct {
	Delivery *reprise.Delivery // input of the handler
	Err      error             // result of the handler; a *reprise.PanicError after a panic
	Began    time.Time
	Took     time.Duration
}

// Attempts lists attempts in the order in which they finished.
type Attempts []Attempt

// Of returns the attempts with the given message id.
func (a Attempts) Of(messageID string) Attempts {
	return slices.DeleteFunc(slices.Clone(a), func(x Attempt) bool { return x.Delivery.MessageID != messageID })
}

// Delays returns the delay of each attempt: the time from the end of the previous attempt at the same message to the
// start of the attempt. It omits first attempts. Messages with the same id count as one message, as do all messages
// without an id.
func (a Attempts) Delays() []time.Duration {
	ended := make(map[string]time.Time)
	var delays []time.Duration
	for _, x := range a {
		id := x.Delivery.MessageID
		if last, again := ended[id]; again {
			delays = append(delays, x.Began.Sub(last))
		}
		ended[id] = x.Began.Add(x.Took)
	}
	return delays
}

// Errors returns the result of each attempt.
func (a Attempts) Errors() []error {
	errs := make([]error, len(a))
	for i, x := range a {
		errs[i] = x.Err
	}
	return errs
}

// Worker is a worker that records its attempts. It is safe for concurrent use.
type Worker struct {
	broker   *Broker
	queue    string
	consumed []string // the queue, or its lanes, or its held queues and partitions
	worker   *reprise.Worker
	ran      chan struct{} // closed when Run has returned
	err      error         // result of Run

	mu       sync.Mutex
	attempts Attempts
	stopped  bool
}

// Work starts a worker with a new client, and returns when the worker has a consumer. The worker runs until t ends or the
// test calls [Worker.Stop]. An attempt includes the middleware of the config, so the recorded attempts match the attempts
// that the worker counts.
func (b *Broker) Work(t TB, config reprise.WorkerConfig) *Worker {
	t.Helper()
	return b.WorkWith(t, b.Client(t, nil), config)
}

// WorkWith is like Work, but uses a client from [Broker.Client]. Use it to test client settings, or several workers
// with one client.
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
	if config.Lanes > 0 {
		w.consumed = topology.Lanes{Count: config.Lanes}.Queues(w.queue)
	} else if k := config.OrderBy; k != nil {
		for n := range k.Partitions {
			partition := consume.PartitionQueue(w.queue, n, k.Partitions)
			w.consumed = append(w.consumed, consume.HeldQueue(partition), partition)
		}
	} else {
		w.consumed = []string{w.queue}
	}
	go func() {
		defer close(w.ran)
		w.err = w.worker.Run(context.Background())
		b.notify()
	}()
	b.mu.Lock()
	b.workers = append(b.workers, w)
	b.mu.Unlock()
	t.Cleanup(func() {
		b.Heal() // a fault could block the shutdown of the worker
		w.cleanup(t)
	})
	if !b.await(func() (bool, time.Time) { return w.hasEnded() || w.worker.Status() == reprise.Status{}, time.Time{} }) {
		t.Fatalf("reprisetest: timed out after %s: worker of %q does not consume", b.config.Timeout, w.queue)
	}
	if w.hasEnded() {
		t.Fatalf("reprisetest: worker of %q has stopped: %v", w.queue, w.err)
	}
	return w
}

// record is the outermost middleware. It records the attempts.
func (w *Worker) record(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) (err error) {
		given := *m // a handler may change its message
		given.Body, given.Headers = bytes.Clone(m.Body), maps.Clone(m.Headers)
		began := time.Now()
		err = reprise.ErrHandlerExited // remains set if the handler calls runtime.Goexit
		defer func() {
			if v := recover(); v != nil {
				err = &reprise.PanicError{Value: v, Stack: debug.Stack()}
			}
			w.add(Attempt{Delivery: &given, Err: err, Began: began, Took: time.Since(began)})
		}()
		return next.Handle(ctx, m)
	})
}

func (w *Worker) add(a Attempt) {
	w.mu.Lock()
	w.attempts = append(w.attempts, a)
	w.mu.Unlock()
	w.broker.notify()
}

// Attempts returns the completed attempts.
func (w *Worker) Attempts() Attempts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.attempts)
}

// Await waits until n attempts have finished, and returns the finished attempts. In a bubble, it also waits for the
// immediate effects of the last attempt. The worker has then settled the message, unless a fault prevents this. If the wait
// exceeds Config.Timeout, the test fails.
func (w *Worker) Await(t TB, n int) Attempts {
	t.Helper()
	var got Attempts
	if !w.broker.await(func() (bool, time.Time) { got = w.Attempts(); return len(got) >= n, time.Time{} }) {
		t.Fatalf("reprisetest: timed out after %s: got %d attempts at messages of %q, want %d", w.broker.config.Timeout, len(got), w.queue, n)
	}
	return got
}

// Stop drains the worker, like a program that exits, and returns the result of the worker's Run method. Messages that
// remain in the worker's queue then count as at rest, unless the queue has other consumers.
func (w *Worker) Stop() error {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	return w.end(context.Background()) // Run limits the drain
}

// end drains the worker and returns the result of Run, or the cause of ctx's cancellation if ctx is done first.
func (w *Worker) end(ctx context.Context) error {
	_ = w.worker.Shutdown(ctx)
	select {
	case <-w.ran:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, queue := range w.consumed {
		if w.broker.consumers(queue) == 0 {
			w.broker.forget(place{"/", queue})
		}
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
		t.Errorf("reprisetest: handler of %q is still running at the end of the test, although its context is canceled", w.queue)
	default:
		t.Errorf("reprisetest: worker of %q: %v", w.queue, err)
	}
}

func (w *Worker) hasEnded() bool {
	select {
	case <-w.ran:
		return true
	default:
		return false
	}
}

// consumers returns the number of consumers of a queue.
func (b *Broker) consumers(queue string) int {
	q, _ := b.inside.Queue("/", queue)
	return q.Consumers
}
