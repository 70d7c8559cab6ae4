package brokercmd

import (
	"crypto/tls"
	"net"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
)

// tlsFlags enable TLS for listeners. They have the names of RabbitMQ's ssl_options.
type tlsFlags struct {
	Certfile         string `placeholder:"FILE" help:"PEM file with the certificate and its chain. Enables TLS for --listen and --management."`
	Keyfile          string `placeholder:"FILE" help:"PEM file with the private key of --certfile."`
	Cacertfile       string `placeholder:"FILE" help:"PEM file with the authorities of client certificates. Enables the mechanism EXTERNAL: the common name is the user."`
	FailIfNoPeerCert bool   `name:"fail-if-no-peer-cert" help:"Refuse AMQP clients without a valid certificate. Requires --cacertfile."`
}

// config returns the configuration of a TLS server, or nil if TLS is off.
func (f *tlsFlags) config() (*tls.Config, error) {
	switch {
	case f.FailIfNoPeerCert && f.Cacertfile == "":
		return nil, exit.Usagef("--fail-if-no-peer-cert requires --cacertfile")
	case f.Certfile == "" && f.Keyfile == "" && f.Cacertfile == "":
		return nil, nil
	case f.Certfile == "" || f.Keyfile == "":
		return nil, exit.Usagef("TLS requires both --certfile and --keyfile")
	}
	c, err := localbroker.TLS(f.Certfile, f.Keyfile, f.Cacertfile, f.FailIfNoPeerCert)
	if err != nil {
		return nil, exit.Usagef("--%w", err)
	}
	return c, nil
}

// overTLS returns a TLS listener, or l if config is nil.
func overTLS(l net.Listener, config *tls.Config) net.Listener {
	if config == nil {
		return l
	}
	return tls.NewListener(l, config)
}

// withoutClientCertificates returns the configuration for the management API, where users log in with passwords.
func withoutClientCertificates(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	c := config.Clone()
	c.ClientAuth, c.ClientCAs = tls.NoClientCert, nil
	return c
}

// scheme returns secure if TLS is on, and plain otherwise.
func scheme(plain, secure string, config *tls.Config) string {
	if config != nil {
		return secure
	}
	return plain
}
