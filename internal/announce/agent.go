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
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
)

// Config configures an Agent.
type Config struct {
	Client  string // name of the client
	Program string // version of the program; default: the version that the Go toolchain recorded

	// Link is the publishing connection, because the broker may block a connection on which the agent publishes, and
	// the consuming connection must not be blocked. The agent receives commands even on a blocked connection.
	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Reconnect backoff.Backoff
	Log       *slog.Logger

	// Set by New.
	Host    string
	PID     int
	reprise string
}

// Agent announces the workers of one client.
type Agent struct {
	cfg    Config
	ctx    context.Context // canceled when the client is closed
	start  sync.Once
	wake   chan struct{} // receives a token when a status is due
	logged [4]sync.Once  // indexed by missing permission; see Agent.refused

	retries *retries
	current atomic.Pointer[session] // nil: not connected, or not set up

	sending sync.Mutex // locked while a status is created and sent, so that the last status of a worker is sent last
	mu      sync.Mutex
	members []*Member
}

// New returns an agent that stops when ctx is done. The agent is idle until a worker joins.
func New(ctx context.Context, cfg Config) *Agent {
	program, version := versions()
	if cfg.Program == "" {
		cfg.Program = program
	}
	cfg.reprise, cfg.PID = version, os.Getpid()
	if host, err := os.Hostname(); err == nil { // the host name is for information only
		cfg.Host = host
	}
	return &Agent{cfg: cfg, ctx: ctx, wake: make(chan struct{}, 1), retries: newRetries()}
}

// Join announces a worker until Leave.
func (a *Agent) Join(w Worker) *Member {
	m := &Member{
		Worker: w, agent: a, id: newID(), started: time.Now(), state: protocol.WorkerConnecting, trouble: "it has just started",
		turn: make(chan struct{}, 1),
	}
	m.mayDeclare.Store(true)
	a.mu.Lock()
	a.members = append(a.members, m)
	a.mu.Unlock()
	a.start.Do(func() { _ = a.cfg.Tasks.Go(a.run) }) // fails only if the client is closed
	m.report()
	return m
}

// lastTimeout is the maximum time that Leave waits for the last status of a worker to be written.
const lastTimeout = time.Second

// Leave stops announcing a worker. If the agent has a session, Leave sends the last status of the worker.
func (a *Agent) Leave(m *Member) {
	a.mu.Lock()
	a.members = slices.DeleteFunc(a.members, func(other *Member) bool { return other == m })
	a.mu.Unlock()
	m.mu.Lock()
	m.state, m.trouble, m.selfPause = protocol.WorkerStopped, "", nil
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
		s.publish(m) // otherwise operators would see an unresponsive worker
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

// all returns the current workers.
func (a *Agent) all() []*Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.members)
}

// run maintains a session until the client is closed.
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

// Check reads the pause of m's queue over conn, before m starts to consume on conn. After an error, the last known pause
// remains in effect.
func (a *Agent) Check(ctx context.Context, conn *amqpconn.Conn, m *Member) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, amqpconn.ErrSilent)
	defer cancel()
	m.check(ctx, conn, nil, true)
}
