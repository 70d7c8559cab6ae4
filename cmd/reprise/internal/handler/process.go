package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// ProcessConfig configures a [Process] handler. Command is required.
type ProcessConfig struct {
	// ExecConfig configures the program. Timeout limits the time from the delivery of a message to the answer. Its default
	// is 30 s.
	ExecConfig

	// Processes is the number of processes. Default: 1.
	Processes int

	// Concurrency is the maximum number of concurrent calls of Handle. Each process has at most its share of these messages
	// in flight. Default: Processes.
	Concurrency int

	// MaxMessages is the number of messages after which a process is replaced. Default: none.
	MaxMessages int

	// MaxMemory is the resident memory of a process, in bytes, above which the process is replaced. It is checked once per
	// second, and requires Linux. Default: none.
	MaxMemory int64

	// If Pause is set, retry_after in an answer pauses consumption; see HTTPConfig.Pause.
	Pause bool
}

// Process is a handler whose programs keep running. Each process handles many messages, several of them concurrently. The
// package comment describes the protocol.
//
// A message is acknowledged only after an answer with its ID. When a process exits, the messages that it has not answered fail,
// and other messages are not affected. A new process starts after a delay, which grows while processes exit without an
// answer. While no process is ready, Handle waits, so that messages do not use attempts.
//
// Process stops a process that does not answer a message within Timeout or writes an unreadable answer, and when the context
// of an attempt is done. It sends SIGTERM to the process group and, after Grace, SIGKILL. Answers that arrive before the
// exit count. A process that is replaced or closed first answers the messages that it has. Then its standard input is closed,
// and if it does not exit within Grace, it is stopped.
type Process struct {
	cfg   ProcessConfig
	exec  *Exec
	share int // maximum number of messages in flight in a process
	start func(*child) (program, error)

	ctx     context.Context // done after Close or Kill
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	children []*child // processes that have not exited
	changed  chan struct{}
	waiting  int   // number of calls of Handle that wait until changed is closed
	problem  error // the reason of the last exit or failed start

	loggedNoise, loggedTwice loglimit.Limit
}

// maxStart is the maximum time until a process is ready. slowStart is the time after which a warning is logged.
const (
	slowStart = 10 * time.Second
	maxStart  = 5 * time.Minute
)

// restarts is the schedule of starts after processes that exited without an answer.
var restarts = backoff.Equal(backoff.Exponential{Initial: 200 * time.Millisecond, Max: 30 * time.Second})

// NewProcess returns a handler for cfg, or an error if cfg is invalid. [Process.Start] starts the processes.
func NewProcess(cfg ProcessConfig) (*Process, error) {
	e, err := NewExec(cfg.ExecConfig)
	switch {
	case err != nil:
		return nil, err
	case min(int64(cfg.Processes), int64(cfg.Concurrency), int64(cfg.MaxMessages), cfg.MaxMemory) < 0:
		return nil, errors.New("handler: the numbers in ProcessConfig must not be negative")
	case cfg.MaxMemory > 0 && runtime.GOOS != "linux":
		return nil, errors.New("handler: ProcessConfig.MaxMemory requires Linux")
	}
	cfg.ExecConfig = e.cfg
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Processes = cmp.Or(cfg.Processes, 1)
	cfg.MaxMessages = cmp.Or(cfg.MaxMessages, math.MaxInt)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	p := &Process{cfg: cfg, exec: e, changed: make(chan struct{})}
	p.share = max(1, (cfg.Concurrency+cfg.Processes-1)/cfg.Processes)
	p.start = p.startProgram
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Check returns an error if the program cannot be found; see [Exec.Check].
func (p *Process) Check() error { return p.exec.Check() }

// Start starts the processes and waits until all are ready. If one of them exits first, Start stops the others and returns the
// error.
func (p *Process) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.cancel)()
	first, errs := make([]*child, p.cfg.Processes), make([]error, p.cfg.Processes)
	var starting sync.WaitGroup
	for i := range first {
		starting.Go(func() { first[i], errs[i] = p.launch() })
	}
	starting.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		p.Close()
		return cmp.Or(context.Cause(ctx), errs[i])
	}
	for _, c := range first {
		p.running.Go(func() { p.tend(c) })
	}
	return nil
}

// tend replaces a ready process and its successors until p.ctx is done.
func (p *Process) tend(c *child) {
	for failures := 0; ; {
		if c != nil {
			<-c.retired
			switch {
			case c.replaced:
				failures = 0
			case c.answered.Load():
				failures = 1
			default:
				failures++
			}
		}
		if failures > 0 {
			select {
			case <-time.After(restarts.Delay(failures)):
			case <-p.ctx.Done():
			}
		}
		if p.ctx.Err() != nil {
			return
		}
		var err error
		if c, err = p.launch(); err != nil {
			failures++
			p.failed(err)
		}
	}
}

// launch starts a process and waits until it is ready.
func (p *Process) launch() (*child, error) {
	c := newChild(p)
	var err error
	if c.program, err = p.start(c); err != nil {
		return nil, err
	}
	close(c.started)
	p.mu.Lock()
	p.children = append(p.children, c)
	p.mu.Unlock()
	p.running.Go(c.write)
	p.running.Go(c.run)
	slow := time.AfterFunc(slowStart, func() { c.log.Warn("waiting until the handler process is ready", "advice", readyAdvice) })
	defer slow.Stop()
	late := time.NewTimer(maxStart)
	defer late.Stop()
	select {
	case <-c.ready:
		p.serve(c)
		return c, nil
	case <-c.ended:
	case <-late.C:
		c.stop(fmt.Sprintf("it was not ready within %s (%s)", maxStart, readyAdvice))
	case <-p.ctx.Done():
		c.stop(errKilled.Error())
	}
	<-c.ended
	if c.err.Code == 0 {
		return nil, fmt.Errorf("handler process exited before it was ready: %w (%s)", c.err, readyAdvice)
	}
	return nil, fmt.Errorf("handler process was not ready: %w", c.err)
}

const readyAdvice = `it must write the line {"ready":true} to its stdout, and flush it`

// failed records and logs why a process has failed.
func (p *Process) failed(err error, args ...any) {
	p.mu.Lock()
	p.problem = err
	p.mu.Unlock()
	if p.ctx.Err() == nil {
		text, _, _ := strings.Cut(err.Error(), "\n") // the log has the rest of its stderr
		p.cfg.Logger.Error("handler process failed; the next one is started", append(args, "error", text)...)
	}
}

// Healthy returns nil if a process is ready, and otherwise the reason why none is.
func (p *Process) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.children, func(c *child) bool { return c.serving }) {
		return nil
	}
	return fmt.Errorf("no handler process is ready: %w", cmp.Or(p.problem, errStarting))
}

var errStarting = errors.New("it is starting")

// Handle implements [reprise.Handler].
func (p *Process) Handle(ctx context.Context, m *reprise.Delivery) error {
	for {
		c, err := p.acquire(ctx)
		if err != nil {
			return err
		}
		r, sent := c.handle(ctx, m)
		p.release(c)
		switch {
		case !sent: // the process exited in between
		case r.err == nil:
			if err := r.answer.outcome(p.cfg.Pause, p.cfg.Results); err != nil || p.cfg.Results == nil {
				return err
			}
			if result, found := r.answer.result(); found {
				return p.cfg.Results.send(ctx, m, result)
			}
			return nil
		case p.exec.ends(ctx):
			return context.Cause(ctx)
		default:
			return r.err
		}
	}
}

// acquire reserves a place in the process with the fewest messages. If all places are taken, it waits.
func (p *Process) acquire(ctx context.Context) (*child, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var best *child
		for _, c := range p.children {
			if c.serving && c.busy < p.share && (best == nil || c.busy < best.busy) {
				best = c
			}
		}
		if best != nil {
			best.busy++
			if best.taken++; best.taken >= p.cfg.MaxMessages {
				best.log.Info("handler process is replaced", "messages", best.taken)
				p.retireLocked(best, true)
			}
			return best, nil
		}
		changed := p.changed
		p.waiting++
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.waiting--
	}
}

func (p *Process) release(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.busy--
	p.settle(c)
	p.wake()
}

// wake makes the waiting calls of acquire look for a process again.
func (p *Process) wake() {
	if p.waiting > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// serve lets a ready process receive messages.
func (p *Process) serve(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil { // Close may not have seen it
		p.retireLocked(c, true)
	}
	if !c.isRetired {
		c.serving = true
		p.wake()
	}
	if p.cfg.MaxMemory > 0 {
		p.running.Go(c.watchMemory)
	}
}

// retire stops the delivery of messages to a process. Replaced reports that the process has not failed.
func (p *Process) retire(c *child, replaced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(c, replaced)
}

func (p *Process) retireLocked(c *child, replaced bool) {
	if c.isRetired {
		return
	}
	c.serving, c.isRetired, c.replaced = false, true, replaced
	close(c.retired)
	p.settle(c)
	p.running.Go(c.finish)
}

// settle closes c.idle if the process is retired and has answered all messages.
func (p *Process) settle(c *child) {
	if c.isRetired && c.busy == 0 && !c.isIdle {
		c.isIdle = true
		close(c.idle)
	}
}

// forget removes a process that has exited.
func (p *Process) forget(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(c, false)
	p.children = slices.DeleteFunc(p.children, func(other *child) bool { return other == c })
}

// Kill sends SIGKILL to all processes and their children, and prevents further starts; see [Exec.Kill].
func (p *Process) Kill() {
	p.cancel()
	p.exec.Kill()
}

// Close closes the standard input of the processes and waits until they have exited. Call it when no call of Handle is running.
func (p *Process) Close() {
	p.cancel()
	p.mu.Lock()
	for _, c := range p.children {
		p.retireLocked(c, true)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// exitError returns the error of a process that exited, or that was stopped for a reason.
func (p *Process) exitError(s exitState, reason, stderr string) *ExitError {
	text := p.exec.name() + ": " + s.text
	if reason != "" {
		text = p.exec.name() + " was stopped: " + reason
	}
	return &ExitError{Code: s.code, text: errorText(text, cause.OfOutput(stderr), stderr)}
}
