package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
)

// program is a running program. Tests replace it.
type program struct {
	pid       int
	stdin     io.WriteCloser
	wait      func() exitState // waits until the program has exited and its output is read
	terminate func()           // SIGTERM to the process group
	kill      func()           // SIGKILL to the process group
	memory    func() int64     // resident memory in bytes
}

// exitState describes how a program has exited.
type exitState struct {
	code int
	text string
}

// startProgram starts the program of a child.
func (p *Process) startProgram(c *child) (program, error) {
	e := p.exec
	cmd := exec.Command(e.path, e.cfg.Command[1:]...)
	cmd.Args[0] = e.cfg.Command[0]
	cmd.Dir = e.cfg.Dir
	cmd.Env = append(inherited(), e.cfg.Env...)
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return program{}, fmt.Errorf("cannot start %s: %w", e.cfg.Command[0], err)
	}
	stderr := &lineLogger{log: c.log, stream: "stderr"}
	out, err := pipeOutput(cmd, c, both{stderr, &c.stderr})
	if err == nil {
		err = e.start(cmd)
		out.started()
	}
	if err != nil {
		_ = stdin.Close()
		return program{}, e.missing(err)
	}
	return program{
		pid:       cmd.Process.Pid,
		stdin:     stdin,
		terminate: func() { _ = terminate(cmd.Process) },
		kill:      func() { kill(cmd.Process) },
		memory:    func() int64 { return residentMemory(cmd.Process.Pid) },
		wait: func() exitState {
			err := cmd.Wait()
			kill(cmd.Process) // the rest of its group, which may hold the pipes
			e.forget(cmd.Process)
			p.retire(c, false)
			out.wait(e.cfg.Grace)
			stderr.flush()
			if cmd.ProcessState == nil {
				return exitState{-1, err.Error()}
			}
			return exitState{cmd.ProcessState.ExitCode(), cmd.ProcessState.String()}
		},
	}, nil
}

// outputs are the pipes of a program. With those of exec.Cmd, Wait would not return while a child of the program holds them.
type outputs struct {
	ends    []io.Closer // of the program
	files   []io.Closer
	copying sync.WaitGroup
}

// pipeOutput passes the output of a program to two writers.
func pipeOutput(cmd *exec.Cmd, stdout, stderr io.Writer) (*outputs, error) {
	o := &outputs{}
	pipe := func(w io.Writer) (*os.File, error) {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		o.ends, o.files = append(o.ends, write), append(o.files, read)
		o.copying.Go(func() {
			_, _ = io.Copy(w, read)
			_ = read.Close()
		})
		return write, nil
	}
	writeOut, err := pipe(stdout)
	if err != nil {
		return nil, err
	}
	writeErr, err := pipe(stderr)
	if err != nil {
		o.started()
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = writeOut, writeErr
	return o, nil
}

// started closes the ends of the program, which has its own copies.
func (o *outputs) started() {
	for _, f := range o.ends {
		_ = f.Close()
	}
}

// wait waits until the output of an exited program is read. A child in another process group can hold a pipe longer than the
// limit.
func (o *outputs) wait(limit time.Duration) {
	late := time.AfterFunc(limit, func() {
		for _, f := range o.files {
			_ = f.Close()
		}
	})
	defer late.Stop()
	o.copying.Wait()
}

// residentMemory returns the resident memory of a process, or 0 if it is unknown.
func residentMemory(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if fields := strings.Fields(string(b)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// inFlight is a message that a process has not answered.
type inFlight struct {
	ctx     context.Context // of its attempt
	replies chan<- reply
}

// child is a process of a [Process] handler.
type child struct {
	owner   *Process
	program program
	log     *slog.Logger

	started chan struct{} // closed when program is set
	ready   chan struct{} // closed by the line {"ready":true}
	retired chan struct{} // closed when it receives no more messages
	idle    chan struct{} // closed when it is retired, and all its messages are answered
	ended   chan struct{} // closed when it has exited
	err     *ExitError    // set before ended is closed

	answered atomic.Bool // whether it has answered a message
	stderr   lastLines

	// Guarded by owner.mu.
	serving, isRetired, isIdle bool
	replaced                   bool // retired without a failure
	busy, taken                int  // number of messages in flight, and of all messages

	mu       sync.Mutex
	inFlight map[uint64]inFlight // nil: it has exited
	last     uint64              // last ID
	out      bytes.Buffer        // lines that are not written yet
	reason   string              // why it was stopped, or ""
	unsent   chan struct{}       // has an element if out is not empty

	// Used by Write only.
	line    []byte // the beginning of a line
	skip    bool   // whether the rest of the line is ignored
	isReady bool
	noise   lineLogger
}

// reply is the answer to a message, or the error of a process that exited without an answer.
type reply struct {
	answer answer
	err    error
}

func newChild(p *Process) *child {
	c := &child{
		owner: p, log: p.cfg.Logger, inFlight: map[uint64]inFlight{}, unsent: make(chan struct{}, 1),
		started: make(chan struct{}), ready: make(chan struct{}), retired: make(chan struct{}), idle: make(chan struct{}), ended: make(chan struct{}),
	}
	c.noise = lineLogger{log: c.log, stream: "stdout"}
	return c
}

// handle passes a message to the process and returns its reply. It returns false if the process has exited before.
func (c *child) handle(ctx context.Context, m *reprise.Delivery) (reply, bool) {
	replies := make(chan reply, 1)
	if !c.send(ctx, m, replies) {
		return reply{}, false
	}
	timeout := time.NewTimer(c.owner.cfg.Timeout)
	defer timeout.Stop()
	var stopped error
	select {
	case r := <-replies:
		return r, true
	case <-timeout.C:
		stopped = &timeoutError{c.owner.cfg.Timeout}
		c.stop("one of its messages had a " + stopped.Error())
	case <-ctx.Done():
		stopped = context.Cause(ctx)
		c.stop(stopped.Error())
	}
	r := <-replies
	if r.err != nil {
		r.err = c.owner.exitError(exitState{code: c.err.Code}, stopped.Error(), c.stderr.String())
	}
	return r, true
}

// send queues a message for the process.
func (c *child) send(ctx context.Context, m *reprise.Delivery, replies chan<- reply) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight == nil {
		return false
	}
	c.last++
	c.inFlight[c.last] = inFlight{ctx, replies}
	writeMessage(ctx, &c.out, c.last, m)
	select {
	case c.unsent <- struct{}{}:
	default:
	}
	return true
}

// maxKeptBuffer is the maximum size of a buffer that write keeps.
const maxKeptBuffer = 1 << 20

// write writes the queued messages to the process, as many as possible at a time. A process that does not read blocks only
// this goroutine.
func (c *child) write() {
	var batch bytes.Buffer
	for {
		select {
		case <-c.unsent:
		case <-c.idle:
			_ = c.program.stdin.Close()
			return
		case <-c.ended:
			return
		}
		c.mu.Lock()
		batch, c.out = c.out, batch
		c.mu.Unlock()
		if _, err := c.program.stdin.Write(batch.Bytes()); err != nil {
			select {
			case <-c.ended:
			case <-time.After(c.owner.cfg.Grace):
				c.stop("it has closed its stdin")
			}
			return
		}
		if batch.Reset(); batch.Cap() > maxKeptBuffer {
			batch = bytes.Buffer{}
		}
	}
}

// run waits until the process has exited. Then the messages without an answer fail.
func (c *child) run() {
	state := c.program.wait()
	c.owner.forget(c)
	c.mu.Lock()
	failed, reason := c.inFlight, c.reason
	c.inFlight = nil
	c.mu.Unlock()
	c.err = c.owner.exitError(state, reason, c.stderr.String())
	close(c.ended)
	for _, m := range failed {
		m.replies <- reply{err: c.err}
	}
	if c.isReady && !c.replaced {
		c.owner.failed(c.err, "messages", len(failed))
	}
}

// stop stops the process for a reason. It does not wait.
func (c *child) stop(reason string) {
	c.mu.Lock()
	first := c.reason == ""
	if first {
		c.reason = reason
	}
	c.mu.Unlock()
	if first {
		c.owner.retire(c, false)
		c.program.terminate()
		c.owner.running.Go(func() {
			select {
			case <-c.ended:
			case <-time.After(c.owner.cfg.Grace):
				c.program.kill()
			}
		})
	}
}

// finish stops a retired process that does not exit after its messages are answered and its stdin is closed.
func (c *child) finish() {
	select {
	case <-c.idle:
	case <-c.ended:
		return
	}
	select {
	case <-c.ended:
	case <-time.After(c.owner.cfg.Grace):
		c.log.Warn("handler process does not exit after the end of its stdin; it is stopped")
		c.stop("it did not exit after the end of its stdin")
	}
}

// watchMemory retires the process when it exceeds the maximum.
func (c *child) watchMemory() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if used := c.program.memory(); used > c.owner.cfg.MaxMemory {
				c.log.Info("handler process is replaced", "memory", used)
				c.owner.retire(c, true)
			}
		case <-c.retired:
			return
		}
	}
}

// Write reads the stdout of the process.
func (c *child) Write(b []byte) (int, error) {
	<-c.started
	n := len(b)
	for len(b) > 0 {
		part, rest, complete := bytes.Cut(b, []byte("\n"))
		b = rest
		if limit := c.owner.maxAnswer(); len(c.line)+len(part) > limit && !c.skip {
			c.stop(fmt.Sprintf("it has written a line of more than %d MiB to stdout (write other output to stderr)", limit>>20))
			c.line, c.skip = nil, true
		}
		switch {
		case c.skip:
		case complete && len(c.line) == 0:
			c.read(part)
		default:
			if c.line = append(c.line, part...); complete {
				c.read(c.line)
			}
		}
		if complete {
			c.line, c.skip = c.line[:0], false
		}
	}
	return n, nil
}

// read reads a line.
func (c *child) read(line []byte) {
	a, err := parseAnswer(line)
	switch {
	case errors.Is(err, errNoise):
		_, _ = c.noise.Write(line)
		c.noise.flush()
		if len(bytes.TrimSpace(line)) > 0 {
			c.owner.loggedNoise.Log(c.log, slog.LevelWarn, "the handler has written a line to stdout that is not an answer (write other output to stderr)", "line", excerpt(line))
		}
	case err != nil:
		c.stop(err.Error())
	case a.Ready:
		if !c.isReady {
			c.isReady = true
			close(c.ready)
		}
	case a.isReport():
		c.report(a)
	default:
		c.settle(a)
	}
}

// report shows operators the progress of a message. A report about an answered message has no effect.
func (c *child) report(a answer) {
	c.mu.Lock()
	m, found := c.inFlight[*a.ID]
	c.mu.Unlock()
	switch {
	case !found:
	case a.Progress != nil:
		reprise.Progress(m.ctx, max(0, *a.Progress), a.Text)
	default:
		reprise.Progress(m.ctx, -1, "")
	}
}

// settle passes an answer to the call of handle with its ID.
func (c *child) settle(a answer) {
	c.mu.Lock()
	m, found := c.inFlight[*a.ID]
	delete(c.inFlight, *a.ID)
	known := *a.ID-1 < c.last
	c.mu.Unlock()
	switch {
	case found:
		c.answered.Store(true)
		m.replies <- reply{answer: a}
	case known:
		c.owner.loggedTwice.Log(c.log, slog.LevelError, "the handler has answered a message again; only its first answer counts", "id", *a.ID, "result", a.Result)
	default:
		c.stop(fmt.Sprintf("it has answered the unknown id %d (answer with the id of the message)", *a.ID))
	}
}
