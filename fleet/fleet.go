// Package fleet lists the workers of all processes that use a broker: for a console, or a command.
//
//	list := fleet.New(client)
//	go list.Run(ctx)
//	…
//	for _, w := range list.Workers() {
//		fmt.Println(w.Queue, w.Host, w.State, w.Running)
//	}
//
// Workers announce themselves if reprise.Config.Announce of their client is true. Nothing runs beside the broker: each worker
// publishes its state (topology.WorkerStatus) to an exchange, and a List has a queue of its own. A List has all workers a moment
// after the start of Run, since it asks them for a status.
//
// To pause and resume, see reprise.Client.Control.
//
// The package imports the standard library and package reprise.
package fleet

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

const (
	// SilentAfter is the time without a status after which a worker is silent: three statuses are missing. Its process was
	// killed, it is not connected, or its statuses do not arrive.
	SilentAfter = 3 * topology.StatusInterval

	// ForgottenAfter is the time without a status after which a worker is not listed any more.
	ForgottenAfter = time.Hour

	// MaxWorkers is the largest number of workers in a List. Statuses of others are ignored.
	MaxWorkers = 10_000
)

// Worker is a worker as a List knows it.
type Worker struct {
	topology.WorkerStatus

	Heard  time.Time // arrival of the newest status, by the clock of this process
	Silent bool      // nothing was heard for SilentAfter
}

// Handles returns how long the worker had been handling a message when it sent its newest status. It may have finished since.
func (w Worker) Handles(h topology.Handling) time.Duration { return max(0, w.Sent.Sub(h.Since)) }

// Pause returns the pause to show first, of those in force: that of the queue, else that of the worker, else its own.
func (w Worker) Pause() (topology.Pause, bool) {
	if len(w.Pauses) == 0 {
		return topology.Pause{}, false
	}
	return w.Pauses[0], true
}

// List is a list of workers. Its methods are safe for concurrent use.
type List struct {
	client *reprise.Client

	mu      sync.Mutex
	workers map[string]Worker // by id
	stopped map[string]time.Time
	observe []func(topology.WorkerStatus)
	err     error // of Run
}

// New returns a list that Run fills.
func New(client *reprise.Client) *List {
	return &List{client: client, workers: map[string]Worker{}, stopped: map[string]time.Time{}}
}

// Observe has f called with each status that arrives from now on, one at a time. It must return soon.
func (l *List) Observe(f func(topology.WorkerStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe = append(l.observe, f)
}

// Run keeps the list until ctx ends. It returns nil then, or the reason for which the broker does not let it: the user lacks a
// permission. It can be called again.
func (l *List) Run(ctx context.Context) error {
	l.end(nil)
	err := l.client.WatchWorkers(ctx, l.add)
	if ctx.Err() != nil {
		return nil
	}
	l.end(err)
	return err
}

func (l *List) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// Err returns the error of Run, for which the list is not kept any more, and nil while it is.
func (l *List) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Control sends a command to workers: see reprise.Client.Control.
func (l *List) Control(ctx context.Context, command topology.Command) error {
	return l.client.Control(ctx, command)
}

// add takes a status.
func (l *List) add(s topology.WorkerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now)
	if _, stopped := l.stopped[s.ID]; stopped {
		return
	}
	old, known := l.workers[s.ID]
	switch {
	case s.State == topology.WorkerStopped:
		delete(l.workers, s.ID)
		l.stopped[s.ID] = now
	case known && s.Sent.Before(old.Sent):
		return
	case known || len(l.workers) < MaxWorkers:
		l.workers[s.ID] = Worker{WorkerStatus: s, Heard: now}
	default:
		return
	}
	for _, f := range l.observe {
		f(s)
	}
}

// forget removes workers that nobody hears of any more.
func (l *List) forget(now time.Time) {
	for id, w := range l.workers {
		if now.Sub(w.Heard) >= ForgottenAfter {
			delete(l.workers, id)
		}
	}
	for id, at := range l.stopped {
		if now.Sub(at) >= SilentAfter {
			delete(l.stopped, id)
		}
	}
}

// Workers returns the workers, ordered by queue, host and start.
func (l *List) Workers() []Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now)
	all := make([]Worker, 0, len(l.workers))
	for _, w := range l.workers {
		w.Silent = now.Sub(w.Heard) >= SilentAfter
		all = append(all, w)
	}
	slices.SortFunc(all, func(x, y Worker) int {
		return cmp.Or(cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.Host, y.Host), x.Started.Compare(y.Started), cmp.Compare(x.ID, y.ID))
	})
	return all
}
