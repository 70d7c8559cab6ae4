package reprise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNotConsuming says that a Worker has no consumer: it is trying to get one, or Run
// was not called yet. The text says which.
var ErrNotConsuming = errors.New("reprise: not consuming")

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

// Consuming is the part of Healthy that asks nobody: nil if the worker consumes,
// or pauses on purpose; ErrNotConsuming with the reason; ErrClosed when it has
// ended. For a program with many workers and one Client.
func (w *Worker) Consuming() error { return w.status.get() }

// status is what keeps a worker from consuming.
type status struct {
	mu  sync.Mutex
	err error
}

func (s *status) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *status) get() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// observe tells the observer, if there is one.
func (w *Worker) observe(e Event) {
	if o := w.client.cfg.Observer; o != nil {
		e.Queue, e.Worker, e.AsDelivered = w.cfg.Queue, w.number, w.cfg.AsDelivered
		o.Observe(e)
	}
}

// interrupted notes that there is no consumer for the time being.
func (w *Worker) interrupted(err error, delay time.Duration) {
	if err != ErrClosed {
		err = fmt.Errorf("%w: %w", ErrNotConsuming, err)
	}
	w.status.set(err)
	w.observe(Event{Kind: EventInterrupted, Err: err, Delay: delay})
}
