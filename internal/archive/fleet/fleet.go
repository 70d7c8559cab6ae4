// Package fleet lists the workers of all processes that use a broker, for a console or a command.
//
//	list := fleet.New(client)
//	go list.Run(ctx)
//	…
//	for _, w := range list.Workers() {
//		fmt.Println(w.Queue, w.Host, w.State, w.Running)
//	}
//
// A worker announces itself if reprise.Config.Announce is set for its client. No server is necessary, because each
// worker publishes its state (protocol.WorkerStatus) to an exchange, and each List has a separate queue. When Run
// starts, the List requests a status from all workers.
//
// To pause and resume workers, see [Control].
//
// The package imports only the standard library and the packages reprise and topology.
package fleet

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
)

const (
	// SilentAfter is the time without a status after which a worker is silent. By then, three statuses are overdue, for
	// example because the process was killed or is disconnected.
	SilentAfter = 3 * protocol.StatusInterval

	// ForgottenAfter is the time without a status after which a List removes a worker.
	ForgottenAfter = time.Hour

	// MaxWorkers is the maximum number of workers in a List. A List ignores statuses of further workers.
	MaxWorkers = 10_000
)

// Worker is the last known state of a worker.
type Worker struct {
	protocol.WorkerStatus

	Heard  time.Time // arrival of the latest status, by the clock of this process
	Silent bool      // whether no status has arrived for SilentAfter
}

// Handles returns the run time of h when the worker sent its latest status.
func (w Worker) Handles(h protocol.Handling) time.Duration { return max(0, w.Sent.Sub(h.Since)) }

// Pause returns an active pause, and false if the worker is not paused. It prefers a pause of the queue to a pause of the
// worker, and both to an automatic pause.
func (w Worker) Pause() (protocol.Pause, bool) {
	if len(w.Pauses) == 0 {
		return protocol.Pause{}, false
	}
	return w.Pauses[0], true
}

// List is a list of workers. Its methods are safe for concurrent use.
type List struct {
	client *reprise.Client

	mu      sync.Mutex
	workers map[string]Worker // by ID
	stopped map[string]time.Time
	observe []func(protocol.WorkerStatus)
	err     error // error of Run
}

// New returns an empty list. Run updates it.
func New(client *reprise.Client) *List {
	return &List{client: client, workers: map[string]Worker{}, stopped: map[string]time.Time{}}
}

// Observe makes the list call f with each status that changes the list after this call, one at a time. f must return
// immediately and must not call methods of the list.
func (l *List) Observe(f func(protocol.WorkerStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe = append(l.observe, f)
}

// Run updates the list until ctx is canceled, and then returns nil. It returns an error if the user does not have a required
// permission, or if the client is closed. Run can be called again.
func (l *List) Run(ctx context.Context) error {
	l.end(nil)
	err := watch(ctx, l.client, l.add)
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

// Err returns the error of the last Run, or nil if Run is running, was canceled or was not called.
func (l *List) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Control sends a command to workers: see [Control].
func (l *List) Control(ctx context.Context, command protocol.Command) error {
	return Control(ctx, l.client, command)
}

// add updates the list with a status.
func (l *List) add(s protocol.WorkerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now)
	if _, stopped := l.stopped[s.ID]; stopped {
		return
	}
	old, known := l.workers[s.ID]
	switch {
	case s.State == protocol.WorkerStopped:
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

// forget removes workers without a recent status.
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
