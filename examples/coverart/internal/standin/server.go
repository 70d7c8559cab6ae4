package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server is an HTTP server on a free port of the loopback interface.
type Server struct {
	URL string

	server *http.Server
	ended  chan error
}

// Serve starts a Server for h.
func Serve(h http.Handler) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("standin: cannot listen: %w", err)
	}
	s := &Server{
		URL:    "http://" + l.Addr().String(),
		server: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second},
		ended:  make(chan error, 1),
	}
	go func() { s.ended <- s.server.Serve(l) }()
	return s, nil
}

// Close stops the server. It waits up to five seconds for requests in progress.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
