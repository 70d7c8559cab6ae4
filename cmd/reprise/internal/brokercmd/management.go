package brokercmd

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
)

// serveManagement serves the management API of the broker, if it is configured.
func (c *runCmd) serveManagement(b *broker.Broker, secure *tls.Config, log *slog.Logger) (*serve.WebServer, error) {
	if c.Management == "" {
		return &serve.WebServer{}, nil
	}
	l, err := serve.Listen(c.Management)
	if err != nil {
		return nil, fmt.Errorf("--management: %w", err)
	}
	if err := c.private(b, "--management "+c.Management, l); err != nil {
		return nil, err
	}
	log.Info("serving the management API", "url", scheme("http", "https", secure)+"://"+serve.WebHost(l.Addr())+"/api/")
	return serve.Web("--management", overTLS(l, withoutClientCertificates(secure)), serve.ProgressDeadlines(b.Management()), log), nil
}
