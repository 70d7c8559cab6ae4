package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// Exit codes with a meaning of their own, from sysexits.h.
const (
	ExitDataErr  = 65 // the message is at fault: park
	ExitTempFail = 75 // try again later; what any other code means, too
)

// DefaultGrace is how long a program has to end after SIGTERM. It is less than
// the 5 s a draining Worker waits for handlers whose context has ended, so that
// programs are gone and the message is given back in order.
const DefaultGrace = 4 * time.Second

// ExecConfig describes an Exec. The Command is required.
type ExecConfig struct {
	Command []string // program and arguments; no shell is involved
	Dir     string   // where it runs, and where a relative Command[0] is; default: here

	// Env is added to the environment of this process, as NAME=value. Variables
	// named REPRISE_… of this process are not passed on: they are its settings,
	// some secret, and not of the message.
	Env []string

	// Timeout ends an attempt, which counts as failed. Default: none.
	Timeout time.Duration

	// Grace is how long the program and its children have after SIGTERM before
	// they get SIGKILL. Default 4 s.
	Grace time.Duration

	// Logger gets what the program writes, line by line. Default: none.
	Logger *slog.Logger

	// Reaper kills programs that this process could not end. Default: none.
	Reaper *Reaper
}

// Exec is a handler that runs a program for each message, see the package
// comment.
//
// The program gets a process group of its own, so that a Ctrl-C meant for this
// process leaves it alone. When the context of an attempt ends, the group gets
// SIGTERM, and after the Grace SIGKILL: children that do as their parent do not
// survive it. What is left of the group after any other failure gets SIGKILL at once,
// since the message is handled again. If the program still exits with 0, the message is done. Exit 65
// after a timeout still parks it; in a drain the worker gives the message back
// instead, as it does after any failure then.
type Exec struct {
	cfg  ExecConfig
	path string

	mu      sync.Mutex
	running map[*os.Process]struct{}
	killed  bool
}

// NewExec checks the configuration; a program that cannot be found is not an
// error before it is needed, see [Exec.Check].
func NewExec(cfg ExecConfig) (*Exec, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, errors.New("handler: ExecConfig.Command is empty: name a program")
	}
	if cfg.Timeout < 0 || cfg.Grace < 0 {
		return nil, errors.New("handler: ExecConfig.Timeout and Grace cannot be negative")
	}
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	path := cfg.Command[0]
	if strings.ContainsRune(path, filepath.Separator) && !filepath.IsAbs(path) {
		// os/exec looks in Dir for this one, exec.LookPath does not.
		abs, err := filepath.Abs(filepath.Join(cfg.Dir, path))
		if err != nil {
			return nil, fmt.Errorf("handler: where is %s? %w", path, err)
		}
		path = abs
	}
	return &Exec{cfg: cfg, path: path, running: map[*os.Process]struct{}{}}, nil
}

// Check reports whether the program and its directory can be found now.
func (e *Exec) Check() error {
	if err := e.directory(); err != nil {
		return err
	}
	_, err := exec.LookPath(e.path)
	return e.missing(err)
}

func (e *Exec) directory() error {
	if e.cfg.Dir == "" {
		return nil
	}
	info, err := os.Stat(e.cfg.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("the directory %s of the handler cannot be used: %w", e.cfg.Dir, errors.Unwrap(err))
	case !info.IsDir():
		return fmt.Errorf("the directory %s of the handler is a file", e.cfg.Dir)
	}
	return nil
}

// missing says in plain words why a program cannot be started. The system's
// error does not tell a missing program from a missing directory.
func (e *Exec) missing(err error) error {
	if err == nil {
		return nil
	}
	if err := e.directory(); err != nil {
		return err
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %s in the PATH: install it, or write where it is", e.cfg.Command[0])
	case errors.Is(err, os.ErrNotExist):
		if _, statErr := os.Stat(e.path); statErr == nil {
			return fmt.Errorf("%s cannot be started: the interpreter in its first line (#!) does not exist", e.path)
		}
		return fmt.Errorf("there is no program %s", e.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is not executable: chmod +x it", e.path)
	}
	return fmt.Errorf("%s cannot be started: %w", e.cfg.Command[0], err)
}

// Handle implements [reprise.Handler].
func (e *Exec) Handle(ctx context.Context, m *reprise.Message) error {
	log := logger(e.cfg.Logger, m)
	if e.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.cfg.Timeout, &timeoutError{e.cfg.Timeout})
		defer cancel()
	}
	stdout := &lineLogger{log: log, stream: "stdout"}
	stderr := &lineLogger{log: log, stream: "stderr"}
	var tail tail

	cmd := exec.CommandContext(ctx, e.path, e.cfg.Command[1:]...)
	cmd.Args[0] = e.cfg.Command[0]
	cmd.Dir = e.cfg.Dir
	cmd.Env = e.environment(m, log)
	cmd.Stdin = bytes.NewReader(m.Body)
	cmd.Stdout = stdout
	cmd.Stderr = both{stderr, &tail}
	cmd.WaitDelay = e.cfg.Grace
	ownGroup(cmd)
	cmd.Cancel = func() error { return terminate(cmd.Process) }

	if err := e.start(cmd); err != nil {
		if e.ends(ctx) || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return e.missing(err)
	}
	err := cmd.Wait()
	failed := cmd.ProcessState == nil || !cmd.ProcessState.Success()
	if ctx.Err() != nil || failed {
		// The program has ended, or had its time; children may not have. The next
		// attempt must not run beside them.
		kill(cmd.Process)
	}
	e.forget(cmd.Process)
	stdout.flush()
	stderr.flush()
	if errors.Is(err, exec.ErrWaitDelay) {
		log.Warn("the program ended but left children that kept its output open; they are no longer listened to", "program", e.cfg.Command[0])
	}
	if failed && e.ends(ctx) {
		return context.Cause(ctx)
	}
	return e.outcome(ctx, cmd.ProcessState, err, tail.String())
}

// outcome makes an exit the result of the attempt.
func (e *Exec) outcome(ctx context.Context, state *os.ProcessState, waited error, said string) error {
	code := -1
	if state != nil {
		code = state.ExitCode()
	}
	if code == 0 {
		return nil
	}
	name := filepath.Base(e.cfg.Command[0])
	var text string
	switch {
	case code != ExitDataErr && ctx.Err() != nil:
		text = fmt.Sprintf("%s was stopped: %v", name, context.Cause(ctx))
	case state != nil:
		text = fmt.Sprintf("%s: %s", name, state)
	default:
		text = fmt.Sprintf("%s: %v", name, waited)
	}
	// A list shows how an error begins; a traceback begins alike whatever was raised.
	if first := raised(said); first != "" {
		text += ": " + first
		said = "\n" + said
	} else if said != "" {
		said = ": " + said
	}
	text += said
	err := &ExitError{Code: code, text: text}
	if code == ExitDataErr {
		return reprise.Park(err)
	}
	return err
}

// ExitError is the error of a program that did not exit with 0.
type ExitError struct {
	Code int // -1 where a signal ended it
	text string
}

// Error says which program it was, how it ended, and the last that it wrote; of a
// traceback of Python, first what was raised.
func (e *ExitError) Error() string { return e.text }

// Kill sends SIGKILL to all programs that run, and their children, and lets no
// other start. It is for a process that ends at once and would leave them
// behind. A killed program has not failed, since its message is delivered again:
// Handle then returns when its context ends, and not before.
func (e *Exec) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killed = true
	for p := range e.running {
		kill(p)
	}
}

// ends reports whether Kill was called. If so, it first waits for the end of ctx.
func (e *Exec) ends(ctx context.Context) bool {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed {
		<-ctx.Done()
	}
	return killed
}

// start starts a program so that Kill finds it. The system starts one at a time
// anyway, the mutex costs nothing.
func (e *Exec) start(cmd *exec.Cmd) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.killed {
		return errKilled
	}
	start := cmd.Start
	if e.cfg.Reaper != nil {
		start = func() error { return e.cfg.Reaper.start(cmd) }
	}
	if err := start(); err != nil {
		return err
	}
	e.running[cmd.Process] = struct{}{}
	return nil
}

func (e *Exec) forget(p *os.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, p)
	if e.cfg.Reaper != nil {
		e.cfg.Reaper.forget(p)
	}
}

var errKilled = errors.New("the process is ending")

// timeoutError is the cause of a context whose attempt took too long.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("timeout after %s", e.after) }
