package announce

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Config configures an Agent.
type Config struct {
	Client  string // name of the client
	Program string // version of the program; "": as the Go toolchain has recorded it

	// Link is the publishing connection: the broker may block the other one for what is published on it. A blocked connection
	// still gets commands.
	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Reconnect backoff.Backoff
	Log       *slog.Logger

	// Filled by New.
	Host    string
	PID     int
	reprise string
}

// Agent announces the workers of one client.
type Agent struct {
	cfg   Config
	ctx   context.Context // ends when the client is closed
	start sync.Once
	wake  chan struct{} // a status is due
	told  [4]sync.Once  // what the user may not do: see session.refused

	retries *retries
	current atomic.Pointer[session] // nil: not connected, or not set up

	sending sync.Mutex // from the making of a status to its end, so that none follows the last one
	mu      sync.Mutex
	members []*Member
}

// New returns an agent that ends with ctx. It does nothing until a worker joins.
func New(ctx context.Context, cfg Config) *Agent {
	program, version := versions()
	if cfg.Program == "" {
		cfg.Program = program
	}
	cfg.reprise, cfg.PID = version, os.Getpid()
	if host, err := os.Hostname(); err == nil { // it is for information only
		cfg.Host = host
	}
	return &Agent{cfg: cfg, ctx: ctx, wake: make(chan struct{}, 1), retries: newRetries()}
}

// Join announces a worker until Leave.
func (a *Agent) Join(w Worker) *Member {
	m := &Member{
		Worker: w, agent: a, id: newID(), started: time.Now(), state: topology.WorkerConnecting, trouble: "it has just begun",
		turn: make(chan struct{}, 1),
	}
	m.mayDeclare.Store(true)
	a.mu.Lock()
	a.members = append(a.members, m)
	a.mu.Unlock()
	a.start.Do(func() { _ = a.cfg.Tasks.Go(a.run) }) // a closed client has no workers
	m.report()
	return m
}

// lastTimeout bounds how long a worker waits for its last status to be written.
const lastTimeout = time.Second

// Leave sends the last status of a worker.
func (a *Agent) Leave(m *Member) {
	a.mu.Lock()
	a.members = slices.DeleteFunc(a.members, func(other *Member) bool { return other == m })
	a.mu.Unlock()
	m.mu.Lock()
	m.state, m.trouble, m.ofItself = topology.WorkerStopped, "", nil
	m.mu.Unlock()
	s := a.current.Load()
	if s == nil {
		return
	}
	sent := make(chan struct{})
	err := a.cfg.Tasks.Go(func() {
		defer close(sent)
		a.sending.Lock()
		defer a.sending.Unlock()
		s.reportRetries()
		s.publish(m) // or the worker is shown as silent
	})
	if err != nil {
		return
	}
	timer := time.NewTimer(lastTimeout)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	}
}

// all returns the workers there are.
func (a *Agent) all() []*Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.members)
}

// run keeps a session until the client is closed.
func (a *Agent) run() {
	retrier := retry.Retrier{Schedule: a.cfg.Reconnect}
	for a.ctx.Err() == nil {
		began := time.Now()
		conn, err := a.cfg.Link.Get(a.ctx)
		if err == nil {
			s := &session{agent: a, conn: conn}
			err = s.serve(a.ctx)
			a.current.Store(nil)
			s.close()
		}
		if errors.Is(err, amqpconn.ErrClosed) {
			return
		}
		if retry.Sleep(a.ctx, retrier.Failed(time.Since(began))) != nil {
			return
		}
	}
}

// Check reads the pause of the queue of m on a connection, before m begins to consume there. If it fails, what was known
// stays.
func (a *Agent) Check(ctx context.Context, conn *amqpconn.Conn, m *Member) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, amqpconn.ErrSilent)
	defer cancel()
	m.check(ctx, conn, nil, true)
}
