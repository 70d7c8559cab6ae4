//go:build unix

package handler

import (
	"bufio"
	"crypto/rand"
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

// startVariable is the environment variable that identifies one start of a program.
const startVariable = ours + "START"

// Reap is the main function of a Reaper process. It reads lines until EOF, which means that the parent process has
// exited or has called [Reaper.Close]. The line "?START" announces a start, "+GROUP" registers the group of the started
// program, and "-GROUP" unregisters it. After EOF, Reap kills the groups that are still registered and, on Linux, the
// group of the announced start.
func Reap(in io.Reader) {
	signal.Ignore() // a signal to all processes of a terminal or service must not terminate this process first
	groups, announced := map[int]struct{}{}, ""
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if start, ok := strings.CutPrefix(lines.Text(), "?"); ok {
			announced = start
			continue
		}
		group, err := strconv.Atoi(strings.TrimLeft(lines.Text(), "+-"))
		switch {
		case err != nil || group <= 1:
		case strings.HasPrefix(lines.Text(), "+"):
			groups[group], announced = struct{}{}, ""
		default:
			delete(groups, group)
		}
	}
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	if announced != "" {
		killStart(announced)
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

// start announces a program to the Reaper process, starts it, and registers it.
func (r *Reaper) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ensure(); err != nil {
		return err
	}
	killWithThread(cmd)
	id := rand.Text()
	cmd.Env = append(cmd.Env, startVariable+"="+id)
	r.tell('?', id)
	started := make(chan error)
	r.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	r.running[cmd.Process] = struct{}{}
	r.tell('+', cmd.Process.Pid)
	return nil
}

// forget unregisters a program after its exit.
func (r *Reaper) forget(p *os.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, p)
	r.tell('-', p.Pid)
}

// tell writes a line to the Reaper process (see Reap). It ignores write errors, because ensure replaces a Reaper process
// that has exited.
func (r *Reaper) tell(sign rune, what any) {
	if r.process != nil {
		_, _ = fmt.Fprintf(r.process.pipe, "%c%v\n", sign, what)
	}
}

// ensure starts the Reaper process and the thread if they are not running.
func (r *Reaper) ensure() error {
	if r.starts == nil {
		r.starts, r.running = make(chan func()), map[*os.Process]struct{}{}
		go startOnThread(r.starts)
	}
	if r.process != nil {
		select {
		case <-r.process.ended: // the process has exited
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
		// The error is not wrapped, because Exec.missing attributes wrapped errors to the program.
		return fmt.Errorf("cannot start the reaper process: %v", err)
	}
	r.process = &reaperProcess{pipe, make(chan struct{})}
	go func(ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(r.process.ended)
	for p := range r.running {
		r.tell('+', p.Pid)
	}
	return nil
}

// startOnThread runs the functions from starts on one thread, which lives as long as the goroutine (see
// killWithThread).
func startOnThread(starts <-chan func()) {
	runtime.LockOSThread()
	for start := range starts {
		start()
	}
}

// Close stops the Reaper process, which kills the programs that are still running.
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
