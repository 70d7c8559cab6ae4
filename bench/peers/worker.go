package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// settings are the environment of a peer in one step of a round.
type settings struct {
	url, queue, reports string
	concurrency         int
	retries             int
	delay               time.Duration
	healed              bool // the handler does not fail
}

func (s settings) environment() []string {
	env := []string{
		"PEER_URL=" + s.url, "PEER_QUEUE=" + s.queue, "PEER_REPORTS=" + s.reports,
		fmt.Sprint("PEER_CONCURRENCY=", s.concurrency), fmt.Sprint("PEER_RETRIES=", s.retries), fmt.Sprint("PEER_DELAY_MS=", s.delay.Milliseconds()),
	}
	if s.healed {
		env = append(env, "PEER_HEALED=1")
	}
	return append(os.Environ(), env...)
}

// command returns the command that runs a verb of a peer. The process has a group, so that a signal reaches its children.
func command(p *peer, s settings, log io.Writer, args ...string) *exec.Cmd {
	args = append(p.command[:len(p.command):len(p.command)], args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environment(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// restartAfter is the default of RestartSec in systemd.
const restartAfter = 100 * time.Millisecond

// worker runs the verb work in one or more processes, and starts a process again if it exits, as systemd does.
type worker struct {
	mu      sync.Mutex
	pids    []int
	stopped bool
	running sync.WaitGroup
}

func startWorker(p *peer, s settings, log io.Writer) (*worker, error) {
	n := 1
	if p.single {
		n, s.concurrency = s.concurrency, 1
	}
	w := &worker{pids: make([]int, n)}
	for i := range n {
		cmd, err := w.start(i, p, s, log)
		if err != nil {
			w.stop()
			return nil, err
		}
		w.running.Go(func() {
			for cmd != nil {
				err := cmd.Wait()
				w.mu.Lock()
				stopped := w.stopped
				w.mu.Unlock()
				if stopped {
					return
				}
				fmt.Fprintf(log, "worker exited: %v\n", err)
				time.Sleep(restartAfter)
				if cmd, err = w.start(i, p, s, log); err != nil {
					fmt.Fprintln(log, err)
				}
			}
		})
	}
	return w, nil
}

// start returns nil if the worker is stopped.
func (w *worker) start(i int, p *peer, s settings, log io.Writer) (*exec.Cmd, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, nil
	}
	cmd := command(p, s, log, "work")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.pids[i] = cmd.Process.Pid
	return cmd, nil
}

// signal sends a signal to all processes and their children.
func (w *worker) signal(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range w.pids {
		if pid > 0 {
			_ = syscall.Kill(-pid, s)
		}
	}
}

func (w *worker) list() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int(nil), w.pids...)
}

// grace is the maximum duration of a graceful shutdown.
const grace = 20 * time.Second

func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	for _, pid := range w.pids { // not the children, which their parent stops
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	w.mu.Unlock()
	late := time.AfterFunc(grace, func() { w.signal(syscall.SIGKILL) })
	w.running.Wait()
	late.Stop()
	w.signal(syscall.SIGKILL) // children that have survived
}

// publish publishes messages with the verb publish: line i returns the payload of message i. A rate of 0 means no limit.
func publish(ctx context.Context, p *peer, s settings, log io.Writer, n int, rate float64, line func(i int) string) error {
	cmd := command(p, s, log, "publish")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	out := bufio.NewWriter(in)
	began := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		if rate > 0 {
			out.Flush()
			time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		}
		fmt.Fprintln(out, line(i))
	}
	out.Flush()
	in.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s publish: %w", strings.Join(p.command, " "), err)
	}
	return nil
}
