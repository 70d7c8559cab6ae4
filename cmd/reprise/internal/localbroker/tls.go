package localbroker

import (
	"crypto/tls"
	"fmt"

	"github.com/reprisemq/reprise/internal/pemfile"
)

// TLS returns the configuration of a TLS server, or nil if certfile is "". With cacertfile, clients may log in with a
// certificate of these authorities (EXTERNAL), and must have one if required is set.
func TLS(certfile, keyfile, cacertfile string, required bool) (*tls.Config, error) {
	if certfile == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(certfile, keyfile)
	if err != nil {
		return nil, fmt.Errorf("certfile %s, keyfile %s: %w", certfile, keyfile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if cacertfile == "" {
		return c, nil
	}
	if c.ClientCAs, err = pemfile.Authorities(cacertfile); err != nil {
		return nil, fmt.Errorf("cacertfile: %w", err)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if required {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
