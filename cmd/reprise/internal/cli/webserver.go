package cli

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

// webServer serves HTTP in the background of a command. The zero value does nothing.
type webServer struct {
	server *http.Server
	failed chan error // nil if the server cannot fail
	done   chan struct{}
}

// Limits that prevent slow clients from holding connections.
const (
	webReadTimeout  = 10 * time.Second
	webWriteTimeout = 30 * time.Second
	webIdleTimeout  = time.Minute
	webMaxHeader    = 16 << 10
)

// serveWeb serves a handler until stop is called. Errors of the server begin with the argument what.
func serveWeb(what string, l net.Listener, h http.Handler, log *slog.Logger) *webServer {
	s := &webServer{
		server: &http.Server{
			Handler:        h,
			ReadTimeout:    webReadTimeout,
			WriteTimeout:   webWriteTimeout,
			IdleTimeout:    webIdleTimeout,
			MaxHeaderBytes: webMaxHeader,
			ErrorLog:       webLog(log),
		},
		failed: make(chan error, 1),
		done:   make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("%s: %w", what, err)
		}
	}()
	return s
}

// webLog returns a log for errors of an HTTP server, such as failed TLS handshakes, which clients can cause at any rate.
func webLog(l *slog.Logger) *log.Logger {
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

// stop stops the server. Running requests have a short time to finish.
func (s *webServer) stop() {
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
