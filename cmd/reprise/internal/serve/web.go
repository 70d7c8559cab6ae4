package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/loglimit"
)

// WebServer serves HTTP in the background of a command. The zero value does nothing.
type WebServer struct {
	server *http.Server
	Failed chan error // nil if the server cannot fail
	done   chan struct{}
}

// Limits that prevent slow clients from holding connections.
const (
	webReadTimeout  = 10 * time.Second
	webWriteTimeout = 30 * time.Second
	webIdleTimeout  = time.Minute
	webMaxHeader    = 16 << 10
)

// Web serves a handler until stop is called. Errors of the server begin with the argument what.
func Web(what string, l net.Listener, h http.Handler, log *slog.Logger) *WebServer {
	s := &WebServer{
		server: &http.Server{
			Handler:        h,
			ReadTimeout:    webReadTimeout,
			WriteTimeout:   webWriteTimeout,
			IdleTimeout:    webIdleTimeout,
			MaxHeaderBytes: webMaxHeader,
			ErrorLog:       WebLog(log),
		},
		Failed: make(chan error, 1),
		done:   make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.Failed <- fmt.Errorf("%s: %w", what, err)
		}
	}()
	return s
}

// WebLog returns a log for errors of an HTTP server, such as failed TLS handshakes, which clients can cause at any rate.
func WebLog(l *slog.Logger) *log.Logger {
	return log.New(&limitedLog{log: l, limit: loglimit.Limit{Burst: 10}}, "", 0)
}

type limitedLog struct {
	log   *slog.Logger
	limit loglimit.Limit
}

func (w *limitedLog) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("panic serving")) { // a fault of the program, which clients must not hide behind their own
		w.log.Error(strings.TrimSpace(string(b)))
		return len(b), nil
	}
	w.limit.Log(w.log, slog.LevelWarn, strings.TrimSpace(string(b)))
	return len(b), nil
}

// Stop stops the server. Running requests have a short time to finish.
func (s *WebServer) Stop() {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.done
}
