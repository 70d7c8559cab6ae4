package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// webServer serves HTTP beside what a command does. The zero value serves nothing.
type webServer struct {
	server *http.Server
	failed chan error // nil: it cannot fail
	done   chan struct{}
}

// How long whoever asks may take to ask, and to take the answer. Nobody holds a
// connection for longer by being slow.
const (
	webReadTimeout  = 10 * time.Second
	webWriteTimeout = 30 * time.Second
	webIdleTimeout  = time.Minute
	webMaxHeader    = 16 << 10
)

// serveWeb serves a handler until stop. What it is for begins the text of an error.
func serveWeb(what string, l net.Listener, h http.Handler, log *slog.Logger) *webServer {
	s := &webServer{
		server: &http.Server{
			Handler:        h,
			ReadTimeout:    webReadTimeout,
			WriteTimeout:   webWriteTimeout,
			IdleTimeout:    webIdleTimeout,
			MaxHeaderBytes: webMaxHeader,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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

// stop ends the server; requests have a moment to be answered.
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

// webURL is where a server on this address is, for this machine.
func webURL(a net.Addr) string { return "http://" + webHost(a) }

func webHost(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	return a.String()
}
