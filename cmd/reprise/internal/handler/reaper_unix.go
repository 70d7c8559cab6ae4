//go:build unix

package handler

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Reap is the process of a [Reaper]. It reads lines "+GROUP" and "-GROUP" until in
// ends, which is the end of the other process, and then kills the process groups that
// remain.
func Reap(in io.Reader) {
	signal.Ignore() // a signal to all processes of a terminal or a service must not end this one first
	groups := map[int]struct{}{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		group, err := strconv.Atoi(strings.TrimLeft(lines.Text(), "+-"))
		switch {
		case err != nil || group <= 1:
		case strings.HasPrefix(lines.Text(), "+"):
			groups[group] = struct{}{}
		default:
			delete(groups, group)
		}
	}
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// reaperProcess is a process that runs Reap.
type reaperProcess struct {
	pipe  io.WriteCloser // its standard input
	ended chan struct{}
}

func (p *reaperProcess) close() {
	_ = p.pipe.Close()
	<-p.ended
}

// start starts a program that the Reaper kills if this process cannot.
func (r *Reaper) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ensure(); err != nil {
		return err
	}
	killWithThread(cmd)
	started := make(chan error)
	r.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	r.running[cmd.Process] = struct{}{}
	r.tell('+', cmd.Process)
	return nil
}

// forget is for a program that has ended.
func (r *Reaper) forget(p *os.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, p)
	r.tell('-', p)
}

// tell ignores errors: ensure starts another process if this one has ended.
func (r *Reaper) tell(sign rune, p *os.Process) {
	if r.process != nil {
		_, _ = fmt.Fprintf(r.process.pipe, "%c%d\n", sign, p.Pid)
	}
}

// ensure starts the process and the thread where there are none.
func (r *Reaper) ensure() error {
	if r.starts == nil {
		r.starts, r.running = make(chan func()), map[*os.Process]struct{}{}
		go startOnThread(r.starts)
	}
	if r.process != nil {
		select {
		case <-r.process.ended: // somebody has killed it
			r.process.close()
			r.process = nil
		default:
			return nil
		}
	}
	cmd := r.Command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		// Not wrapped: the caller takes what it finds in an error for what is wrong with its program.
		return fmt.Errorf("cannot start the process that kills programs if this one is killed: %v", err)
	}
	r.process = &reaperProcess{pipe, make(chan struct{})}
	go func(ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(r.process.ended)
	for p := range r.running {
		r.tell('+', p)
	}
	return nil
}

// startOnThread runs functions on a thread that lives as long as this goroutine, see
// killWithThread.
func startOnThread(starts <-chan func()) {
	runtime.LockOSThread()
	for start := range starts {
		start()
	}
}

// Close ends the process, and kills the programs that are still running.
func (r *Reaper) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts != nil {
		close(r.starts)
		r.starts = nil
	}
	if r.process != nil {
		r.process.close()
		r.process = nil
	}
}
