package upcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

// handlers contains the handlers of a configuration, in the order of its workers.
type handlers struct {
	of    []reprise.Handler
	execs []*handler.Exec
	https []*handler.HTTP

	processes []startable

	reaper *handler.Reaper
}

// startable is a handler whose processes start before the workers.
type startable struct {
	*handler.Process
	queue string
}

// newHandlers creates the handlers. It reports missing programs and files at startup, not when the first message arrives.
func newHandlers(cfg *config.Config, log *slog.Logger) (*handlers, []config.Problem, error) {
	hs := &handlers{reaper: &handler.Reaper{Command: reap}}
	var missing []config.Problem
	for _, w := range cfg.Workers {
		if w.HTTP != nil {
			h, err := newHTTP(w, log)
			if err != nil {
				missing = append(missing, config.Problem{Position: w.HTTP.At, Text: err.Error()})
				continue
			}
			hs.https = append(hs.https, h)
			hs.of = append(hs.of, h)
			continue
		}
		if w.Process != nil {
			h, err := newProcess(w, hs.reaper, log)
			if err == nil {
				err = h.Check()
			}
			if err != nil {
				missing = append(missing, config.Problem{Position: w.Process.At, Text: err.Error()})
				continue
			}
			hs.processes = append(hs.processes, startable{h, w.Queue})
			hs.of = append(hs.of, h)
			continue
		}
		h, err := newExec(w, hs.reaper, log)
		if err != nil {
			return nil, nil, err
		}
		if err := h.Check(); err != nil {
			missing = append(missing, config.Problem{Position: w.Exec.At, Text: err.Error()})
		}
		hs.execs = append(hs.execs, h)
		hs.of = append(hs.of, h)
	}
	return hs, missing, nil
}

// ReapCommand is the command that Main runs as the process of a [handler.Reaper].
const ReapCommand = "__reap"

// reap returns a command that starts this program with ReapCommand.
func reap() *exec.Cmd {
	path, err := os.Executable()
	return &exec.Cmd{Path: path, Err: err, Args: []string{"reprise", ReapCommand}}
}

func newExec(w config.Worker, reaper *handler.Reaper, log *slog.Logger) (*handler.Exec, error) {
	return handler.NewExec(execConfig(*w.Exec, reaper, log))
}

func newProcess(w config.Worker, reaper *handler.Reaper, log *slog.Logger) (*handler.Process, error) {
	return handler.NewProcess(handler.ProcessConfig{
		ExecConfig: execConfig(w.Process.Exec, reaper, log.With("queue", w.Queue)), Concurrency: w.Concurrency, Processes: w.Process.Processes,
		MaxMessages: w.Process.MaxMessages, MaxMemory: w.Process.MaxMemory, Pause: w.Process.Pause,
	})
}

func execConfig(e config.Exec, reaper *handler.Reaper, log *slog.Logger) handler.ExecConfig {
	c := handler.ExecConfig{Command: e.Command, Dir: e.Dir, Timeout: e.Timeout, Logger: log, Reaper: reaper}
	for _, p := range e.Env {
		c.Env = append(c.Env, p.Name+"="+p.Value)
	}
	return c
}

func newHTTP(w config.Worker, log *slog.Logger) (*handler.HTTP, error) {
	c := handler.HTTPConfig{URL: w.HTTP.URL, Timeout: w.HTTP.Timeout, Connections: w.Concurrency, Headers: http.Header{}, Pause: w.HTTP.Pause, Secrets: w.HTTP.Secrets, CACertFile: w.HTTP.CACertFile, Logger: log}
	for _, p := range w.HTTP.Headers {
		c.Headers.Set(p.Name, p.Value)
	}
	return handler.NewHTTP(c)
}

// kill kills all running programs.
func (hs *handlers) kill() {
	for _, h := range hs.execs {
		h.Kill()
	}
	for _, h := range hs.processes {
		h.Kill()
	}
}

// start starts the handlers whose processes keep running.
func (hs *handlers) start(ctx context.Context) error {
	errs := make([]error, len(hs.processes))
	var starting sync.WaitGroup
	for i, h := range hs.processes {
		starting.Go(func() {
			if err := h.Start(ctx); err != nil {
				errs[i] = fmt.Errorf("queue %s: %w", h.queue, err)
			}
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

// healthy returns the check of the handler of a queue, or nil.
func (hs *handlers) healthy(queue string) func() error {
	for _, h := range hs.processes {
		if h.queue == queue {
			return h.Healthy
		}
	}
	return nil
}

func (hs *handlers) close() {
	var closing sync.WaitGroup
	for _, h := range hs.processes {
		closing.Go(h.Close)
	}
	closing.Wait()
	for _, h := range hs.https {
		h.Close()
	}
	hs.reaper.Close()
}
