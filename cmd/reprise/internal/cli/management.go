package cli

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/reprisemq/reprise/broker"
)

// serveManagement serves the management API of the broker, if it is configured.
func (c *runCmd) serveManagement(b *broker.Broker, secure *tls.Config, log *slog.Logger) (*webServer, error) {
	if c.Management == "" {
		return &webServer{}, nil
	}
	l, err := listen(c.Management)
	if err != nil {
		return nil, fmt.Errorf("--management: %w", err)
	}
	if err := c.private(b, "--management "+c.Management, l); err != nil {
		return nil, err
	}
	log.Info("serving the management API", "url", scheme("http", "https", secure)+"://"+webHost(l.Addr())+"/api/")
	return serveWeb("--management", overTLS(l, withoutClientCertificates(secure)), progressDeadlines(b.Management()), log), nil
}
