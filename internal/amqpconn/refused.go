package amqpconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Possible first bytes of the data from a server: the type of an AMQP frame or of a TLS record. An AMQP protocol header
// begins with 'A'.
const (
	frameMethod  = 1
	tlsAlert     = 21
	tlsHandshake = 22
)

// explain converts permanent errors of the broker and of TLS to a *ConnectError. A refusal that the client only infers
// is a *refusedError. explain converts other errors of the client with the function ended.
func (l *Link) explain(a address, s *socket, err error) error {
	fatal := func(format string, args ...any) error {
		return &ConnectError{Addr: a.addr, Reason: fmt.Sprintf(format, args...), Err: err}
	}
	if reason := explainTLS(err); reason != "" {
		return fatal("%s", reason)
	}
	if s != nil && a.Scheme == "amqp" {
		switch s.first.Load() {
		case 0, 'A', frameMethod:
		case tlsAlert, tlsHandshake:
			return fatal("the server uses TLS; use amqps://, or the port without TLS (usually 5672)")
		default:
			return fatal("the server does not use AMQP; check the port (usually 5672)")
		}
	}
	refusal, ok := errors.AsType[*amqp.Error](err)
	switch {
	case !ok:
		return err
	case refusal == amqp.ErrSASL:
		return fatal("the broker does not support a login mechanism of this URL; check auth_mechanism")
	case refusal == amqp.ErrCredentials:
		// The client infers ErrCredentials, because some brokers close the connection silently after a wrong password. A
		// broken network looks the same.
		return &refusedError{fatal("%s", refusedLogin(a))}
	case refusal.Code == amqp.AccessRefused && refusal.Server:
		return fatal("%s (%s)", refusedLogin(a), refusal.Reason)
	case refusal.Code == amqp.NotAllowed && refusal.Server && strings.Contains(refusal.Reason, "limit ("):
		return ended(err) // the connection limit is reached; a retry can succeed after other connections close
	case refusal.Code == amqp.NotAllowed && refusal.Server:
		return fatal("the broker denied user %q access to virtual host %q; check that it exists and that the user has permissions on it (%s)", a.Username, a.Vhost, refusal.Reason)
	}
	return ended(err)
}

// refusedLogin explains that the broker has refused the user or the password.
func refusedLogin(a address) string {
	if a.login() == "" {
		return "the broker refused the client certificate; check that one is set, that it names a user of the broker, and that the broker demands one (RabbitMQ: ssl_options.verify_peer and fail_if_no_peer_cert)"
	}
	text := fmt.Sprintf("the broker refused user %q; check user name and password", a.Username)
	if a.Username == "guest" && !isLoopback(a.Host) {
		text += ". RabbitMQ accepts user guest only from localhost"
	}
	return text
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// refusedError is a *ConnectError for a refusal that the client only infers; see Rotation.refusal.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// explainTLS returns the cause of a permanent TLS failure, or "" for other errors.
func explainTLS(err error) string {
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		advice := "check the clocks and the certificate"
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
			advice = "trust its authority, in Config.TLS as RootCAs or by the URL's cacertfile"
		}
		if _, ok := errors.AsType[x509.HostnameError](err); ok {
			advice = "connect by a name in the certificate, or set the expected name in Config.TLS as ServerName or by the URL's server_name_indication"
		}
		return fmt.Sprintf("the broker's TLS certificate is not trusted: %v; %s", cert.Err, advice)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not use TLS; use amqp://, or the TLS port (usually 5671)"
	}
	if files, ok := errors.AsType[*filesError](err); ok {
		return files.Error()
	}
	text := err.Error()
	// With TLS 1.3 the alert arrives after the handshake, wrapped in an AMQP error.
	_, alert, found := strings.Cut(text, "remote error: tls: ")
	if found && !strings.HasPrefix(alert, "internal error") {
		return fmt.Sprintf("the server refused TLS (%s); check the client certificate, in Config.TLS or by the URL's certfile and keyfile", strings.TrimRight(alert, `"`))
	}
	return ""
}

// filesError reports that a file of a URL cannot be used.
type filesError struct{ err error }

func (e *filesError) Error() string {
	return "cannot use the files of the URL: " + e.err.Error()
}
func (e *filesError) Unwrap() error { return e.err }
