package upcmd

import (
	"log/slog"
	"net/http"
	"os"
	"os/exec"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

// handlers contains the handlers of a configuration, in the order of its workers.
type handlers struct {
	of    []reprise.Handler
	execs []*handler.Exec
	https []*handler.HTTP

	reaper *handler.Reaper
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
	c := handler.ExecConfig{Command: w.Exec.Command, Dir: w.Exec.Dir, Timeout: w.Exec.Timeout, Logger: log, Reaper: reaper}
	for _, p := range w.Exec.Env {
		c.Env = append(c.Env, p.Name+"="+p.Value)
	}
	return handler.NewExec(c)
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
}

func (hs *handlers) close() {
	for _, h := range hs.https {
		h.Close()
	}
	hs.reaper.Close()
}
