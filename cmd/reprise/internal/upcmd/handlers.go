package upcmd

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

// workHandler is the handler of a worker. start returns when it can handle messages. After a second signal, kill ends running
// programs.
type workHandler struct {
	reprise.Handler
	start       func(context.Context) error
	healthy     func() error // nil: always
	kill, close func()
}

// newHandler creates the handler of a worker, unless its program or a file is missing or unusable.
func newHandler(w config.Worker, results *handler.Results, reaper *handler.Reaper, log *slog.Logger) (*workHandler, []config.Problem, error) {
	none := func() {}
	made := &workHandler{start: func(context.Context) error { return nil }, kill: none, close: none}
	at := config.Position{}
	var err error
	switch {
	case w.HTTP != nil:
		at = w.HTTP.At
		var h *handler.HTTP
		if h, err = newHTTP(w, results, log); err == nil {
			made.Handler, made.close = h, sync.OnceFunc(h.Close)
		}
	case w.Process != nil:
		at = w.Process.At
		var h *handler.Process
		if h, err = newProcess(w, results, reaper, log); err == nil {
			made.Handler, made.start, made.healthy, made.kill, made.close = h, h.Start, h.Healthy, h.Kill, sync.OnceFunc(h.Close)
			err = h.Check()
		}
	default:
		at = w.Exec.At
		h, invalid := newExec(w, results, reaper, log)
		if invalid != nil {
			return made, nil, invalid
		}
		made.Handler, made.kill, err = h, h.Kill, h.Check()
	}
	if err != nil {
		return made, []config.Problem{{Position: at, Text: err.Error()}}, nil
	}
	return made, nil, nil
}

// ReapCommand is the command that Main runs as the process of a [handler.Reaper].
const ReapCommand = "__reap"

// reap returns a command that starts this program with ReapCommand.
func reap() *exec.Cmd {
	path, err := os.Executable()
	return &exec.Cmd{Path: path, Err: err, Args: []string{"reprise", ReapCommand}}
}

func newExec(w config.Worker, results *handler.Results, reaper *handler.Reaper, log *slog.Logger) (*handler.Exec, error) {
	return handler.NewExec(execConfig(*w.Exec, results, reaper, log))
}

func newProcess(w config.Worker, results *handler.Results, reaper *handler.Reaper, log *slog.Logger) (*handler.Process, error) {
	return handler.NewProcess(handler.ProcessConfig{
		ExecConfig: execConfig(w.Process.Exec, results, reaper, log.With("queue", w.Queue)), Concurrency: w.Concurrency, Processes: w.Process.Processes,
		MaxMessages: w.Process.MaxMessages, MaxMemory: w.Process.MaxMemory, Pause: w.Process.Pause,
	})
}

func execConfig(e config.Exec, results *handler.Results, reaper *handler.Reaper, log *slog.Logger) handler.ExecConfig {
	c := handler.ExecConfig{Command: e.Command, Dir: e.Dir, Timeout: e.Timeout, Logger: log, Reaper: reaper, Results: results}
	for _, p := range e.Env {
		c.Env = append(c.Env, p.Name+"="+p.Value)
	}
	return c
}

func newHTTP(w config.Worker, results *handler.Results, log *slog.Logger) (*handler.HTTP, error) {
	c := handler.HTTPConfig{URL: w.HTTP.URL, Timeout: w.HTTP.Timeout, Connections: w.Concurrency, Headers: http.Header{}, Pause: w.HTTP.Pause, Secrets: w.HTTP.Secrets, CACertFile: w.HTTP.CACertFile, CertFile: w.HTTP.CertFile, KeyFile: w.HTTP.KeyFile, Results: results, Logger: log}
	for _, p := range w.HTTP.Headers {
		c.Headers.Set(p.Name, p.Value)
	}
	return handler.NewHTTP(c)
}
