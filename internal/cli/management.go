package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// managementServer serves the management API beside a broker. The zero value serves nothing.
type managementServer struct {
	server *http.Server
	failed chan error // nil: it cannot fail
	done   chan struct{}
}

// serveManagement starts the server if there is to be one.
func (c *runCmd) serveManagement(b *broker.Broker, log *slog.Logger) (*managementServer, error) {
	if c.Management == "" {
		return &managementServer{}, nil
	}
	l, err := listen(c.Management)
	if err != nil {
		return nil, fmt.Errorf("--management: %w", err)
	}
	if err := c.private(b, "--management "+c.Management, l); err != nil {
		return nil, err
	}
	s := &managementServer{
		server: &http.Server{Handler: b.Management(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute},
		failed: make(chan error, 1),
		done:   make(chan struct{}),
	}
	log.Info("serving the management API", "url", managementURL(l.Addr()))
	go func() {
		defer close(s.done)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("--management: %w", err)
		}
	}()
	return s, nil
}

// managementURL is where the API begins.
func managementURL(a net.Addr) string {
	host := a.String()
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	return "http://" + host + "/api/"
}

// stop ends the server; requests have a moment to be answered.
func (s *managementServer) stop() {
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
