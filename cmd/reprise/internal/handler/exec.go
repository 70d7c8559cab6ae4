package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// Exit codes with a defined outcome, from sysexits.h. Any other nonzero code leads to a retry.
const (
	ExitDataErr  = 65 // invalid message: park
	ExitTempFail = 75 // temporary failure: retry
)

// DefaultGrace is the default time between SIGTERM and SIGKILL. It is shorter than the 5 s for which a draining Worker
// waits for handlers whose context is canceled. Therefore the program exits, and the worker requeues the message,
// before the drain ends.
const DefaultGrace = 4 * time.Second

// ExecConfig configures an [Exec] handler. Command is required.
type ExecConfig struct {
	Command []string // program and arguments, started without a shell
	Dir     string   // working directory, and base of a relative Command[0]; default: the current directory

	// Env contains additional variables of the form NAME=value. The program also inherits the environment of this
	// process, except variables named REPRISE_…, which are settings of this process, can be secret, and would look like
	// properties of the message.
	Env []string

	// Timeout limits the duration of an attempt. Default: none.
	Timeout time.Duration

	// Grace is the time between SIGTERM and SIGKILL for the program and its children. Default: 4 s.
	Grace time.Duration

	// Logger logs the output of the program, line by line, and the names of omitted values. Default: none.
	Logger *slog.Logger

	// Results receives the standard output of the program, which is then not logged. Default: none.
	Results *Results

	// Reaper kills the programs that are still running when this process exits. Default: none.
	Reaper *Reaper
}

// Exec is a handler that runs a program for each message. The package comment describes the inputs and outcomes.
//
// The program runs in a separate process group, so that Ctrl-C in the terminal of this process does not interrupt the
// program. When the context of an attempt is done, Exec sends SIGTERM to the group and, after Grace, SIGKILL. In this
// case, children that stay in the group do not outlive the program. If the program fails before that, Exec immediately
// sends SIGKILL to the rest of the group, so that no child is still running when the message is retried.
//
// If the program exits with 0 after SIGTERM, the message counts as processed. Exit 65 after a timeout still parks the
// message. During a drain, the worker requeues the message after any failure, including exit 65.
type Exec struct {
	cfg  ExecConfig
	path string

	mu      sync.Mutex
	running map[*os.Process]struct{}
	killed  bool

	loggedOpen, loggedOmitted loglimit.Limit
}

// NewExec returns a handler for cfg, or an error if cfg is invalid. It does not check that the program exists;
// [Exec.Check] does.
func NewExec(cfg ExecConfig) (*Exec, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, errors.New("handler: ExecConfig.Command must not be empty (set a program)")
	}
	if cfg.Timeout < 0 || cfg.Grace < 0 {
		return nil, fmt.Errorf("handler: ExecConfig.Timeout and Grace must not be negative: got %s and %s", cfg.Timeout, cfg.Grace)
	}
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	path := cfg.Command[0]
	if strings.ContainsRune(path, filepath.Separator) && !filepath.IsAbs(path) {
		// os/exec resolves this path relative to Dir, and exec.LookPath does not.
		abs, err := filepath.Abs(filepath.Join(cfg.Dir, path))
		if err != nil {
			return nil, fmt.Errorf("handler: cannot find %s: %w", path, err)
		}
		path = abs
	}
	return &Exec{cfg: cfg, path: path, running: map[*os.Process]struct{}{}}, nil
}

// Check returns an error if the program, its interpreter, the script that an interpreter is to run, or the directory cannot
// be found.
func (e *Exec) Check() error {
	if err := e.directory(); err != nil {
		return err
	}
	path, err := exec.LookPath(e.path)
	if err != nil {
		return e.missing(err)
	}
	return errors.Join(e.checkScript(path), e.checkArgument())
}

func (e *Exec) directory() error {
	if e.cfg.Dir == "" {
		return nil
	}
	info, err := os.Stat(e.cfg.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("cannot use the directory %s of the handler: %w", e.cfg.Dir, errors.Unwrap(err))
	case !info.IsDir():
		return fmt.Errorf("the directory %s of the handler is a file", e.cfg.Dir)
	}
	return nil
}

// missing converts err, the error of a failed start, into an error that names the cause. The system error does not
// distinguish a missing program from a missing directory.
func (e *Exec) missing(err error) error {
	if err == nil {
		return nil
	}
	if err := e.directory(); err != nil {
		return err
	}
	info, _ := os.Stat(e.path)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("program %s not found in the PATH (%s)", e.cfg.Command[0], e.advice())
	case info != nil && info.IsDir():
		return fmt.Errorf("program %s is a directory", e.path)
	case errors.Is(err, os.ErrPermission) && info != nil && info.Mode()&0o111 != 0:
		return fmt.Errorf("%s cannot be executed although it has the permission (its file system may be mounted with noexec, or the permission may be that of another user)", e.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is not executable (use chmod +x)", e.path)
	case errors.Is(err, syscall.ETXTBSY):
		return fmt.Errorf("cannot start %s: another process has the file open for writing (write to a new file, and rename it)", e.path)
	}
	if err := e.checkScript(e.path); err != nil { // the system reports a missing interpreter like a missing program
		return err
	}
	if errors.Is(err, os.ErrNotExist) {
		if advice := e.advice(); advice != "" {
			return fmt.Errorf("program %s not found (%s)", e.path, advice)
		}
		return fmt.Errorf("program %s not found", e.path)
	}
	return fmt.Errorf("cannot start %s: %w", e.cfg.Command[0], err)
}

// Handle implements [reprise.Handler].
func (e *Exec) Handle(ctx context.Context, m *reprise.Delivery) error {
	if e.cfg.Results == nil {
		log := logger(e.cfg.Logger, m)
		stdout := &lineLogger{log: log, stream: "stdout"}
		defer stdout.flush()
		return e.run(ctx, m, stdout, log)
	}
	stdout := &prefix{limit: e.cfg.Results.Max}
	if err := e.run(ctx, m, stdout, logger(e.cfg.Logger, m)); err != nil {
		return err
	}
	return e.cfg.Results.send(ctx, m, Result{Body: stdout.Bytes()})
}

// run runs the program for a message.
func (e *Exec) run(ctx context.Context, m *reprise.Delivery, stdout io.Writer, log *slog.Logger) error {
	if e.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.cfg.Timeout, &timeoutError{e.cfg.Timeout})
		defer cancel()
	}
	stderr := &lineLogger{log: log, stream: "stderr"}
	var output ends

	cmd := exec.CommandContext(ctx, e.path, e.cfg.Command[1:]...)
	cmd.Args[0] = e.cfg.Command[0]
	cmd.Dir = e.cfg.Dir
	cmd.Env = e.environment(ctx, m, log)
	cmd.Stdin = bytes.NewReader(m.Body)
	cmd.Stdout = stdout
	cmd.Stderr = both{stderr, &output}
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
		// The program exited or was killed, but its children may still be running. Kill them before the next attempt.
		kill(cmd.Process)
	}
	e.forget(cmd.Process)
	stderr.flush()
	if errors.Is(err, exec.ErrWaitDelay) {
		e.loggedOpen.Log(log, slog.LevelWarn, "the program exited, but its children kept its output open; the rest of the output is ignored",
			"program", e.cfg.Command[0])
	}
	if failed && e.ends(ctx) {
		return context.Cause(ctx)
	}
	return e.outcome(ctx, cmd.ProcessState, err, output.String())
}

// name returns the name of the program for errors.
func (e *Exec) name() string { return filepath.Base(e.cfg.Command[0]) }

// outcome returns the result of the attempt, given the state of the program after its exit.
func (e *Exec) outcome(ctx context.Context, state *os.ProcessState, waited error, stderr string) error {
	code := -1
	if state != nil {
		code = state.ExitCode()
	}
	if code == 0 {
		return nil
	}
	name := e.name()
	var text string
	switch {
	case code != ExitDataErr && ctx.Err() != nil:
		text = fmt.Sprintf("%s was stopped: %v", name, context.Cause(ctx))
	case state != nil:
		text = fmt.Sprintf("%s: %s", name, state)
	default:
		text = fmt.Sprintf("%s: %v", name, waited)
	}
	err := &ExitError{Code: code, text: errorText(text, cause.OfOutput(stderr), stderr)}
	if code == ExitDataErr {
		return reprise.Park(err)
	}
	return err
}

// ExitError is the error of a program whose exit code is not 0.
type ExitError struct {
	Code int // -1 if a signal terminated the program
	text string
}

// Error returns the name of the program, its exit status or the reason why it was stopped, and the cause of the failure in
// its standard error. The next lines contain the beginning and the end of the standard error.
func (e *ExitError) Error() string { return e.text }

// ErrorType returns the exit code, for the attribute error.type of a span.
func (e *ExitError) ErrorType() string {
	if e.Code < 0 {
		return "signal"
	}
	return "exit " + strconv.Itoa(e.Code)
}

// Kill sends SIGKILL to all running programs and their children, and prevents further starts. Call it before the
// process exits without a drain, so that no program survives it. For a killed program, Handle returns only when its
// context is done, so that the attempt does not count as failed. The broker redelivers the message.
func (e *Exec) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killed = true
	for p := range e.running {
		kill(p)
	}
}

// ends reports whether Kill was called. If so, it waits until ctx is done before it returns.
func (e *Exec) ends(ctx context.Context) bool {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed {
		<-ctx.Done()
	}
	return killed
}

// start starts a program and registers it for Kill. The mutex does not reduce throughput, because package syscall
// starts one program at a time anyway (ForkLock).
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

var errKilled = errors.New("the process is exiting")

// timeoutError is the cancellation cause of an attempt that exceeded its timeout.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("timeout after %s", e.after) }

func (e *timeoutError) ErrorType() string { return "timeout" }
