package session

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// mechanisms returns the supported authentication mechanisms: PLAIN and AMQPLAIN, and EXTERNAL if the client has a
// verified certificate.
func (s *Session) mechanisms() string {
	if s.certificate() != nil {
		return "PLAIN AMQPLAIN EXTERNAL"
	}
	return "PLAIN AMQPLAIN"
}

func (s *Session) overTLS() bool {
	_, ok := s.conn.(*tls.Conn)
	return ok
}

// certificate returns the verified certificate of the client, or nil.
func (s *Session) certificate() *x509.Certificate {
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	// The TLS handshake is complete, because the protocol header was read through it.
	chains := conn.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return nil
	}
	return chains[0][0]
}

// refusal is the reason for a refused login. The broker does not send it to the client.
type refusal struct{ error }

// Unwrap supports [errors.As].
func (r refusal) Unwrap() error { return r.error }

func refused(user, reason string) refusal {
	return refusal{fmt.Errorf("login of user %q refused: %s", user, reason)}
}

// identify authenticates the client and returns its user. If the broker refuses the login, the error is a [refusal].
func (s *Session) identify(mechanism, response string) (user string, err error) {
	control := s.config.Access
	if certificate := s.certificate(); mechanism == "EXTERNAL" && certificate != nil {
		user = s.config.CertificateUser(certificate)
		if _, known := control.User(user); !known {
			return "", refused(user, "the certificate does not belong to a user")
		}
		return user, nil
	}
	user, password, err := credentials(mechanism, response)
	if err != nil {
		return "", err
	}
	peer, authentic := s.conn.RemoteAddr(), false
	if peer.Network() == "pipe" { // a pipe connects two ends within this process
		authentic = control.Authenticate(user, password)
	} else {
		authentic, err = control.AwaitLogin(s.serving, peer.String(), user, password)
		if waits, ok := errors.AsType[*access.WaitError](err); ok {
			err = refusal{waits}
		}
		err = cmp.Or(err, s.setTimeout(handshakeTimeout)) // restart the handshake timeout after a delayed login
	}
	if err == nil && !authentic {
		err = refused(user, control.Refusal(peer.String(), user, password))
	}
	return user, err
}

// credentials parses the client's response for PLAIN or AMQPLAIN.
func credentials(mechanism, response string) (user, password string, err error) {
	switch mechanism {
	case "PLAIN": // RFC 4616: authorization identity (must be empty), user, password
		parts := strings.Split(response, "\x00")
		if len(parts) != 3 || parts[0] != "" {
			return "", "", errors.New("malformed PLAIN response")
		}
		return parts[1], parts[2], nil
	case "AMQPLAIN": // a table without its length prefix
		length := binary.BigEndian.AppendUint32(nil, uint32(len(response)))
		table, err := amqpwire.ParseTable(append(length, response...))
		if err != nil {
			return "", "", fmt.Errorf("malformed AMQPLAIN response: %w", err)
		}
		login, _ := table.Get("LOGIN")
		secret, _ := table.Get("PASSWORD")
		user, okUser := login.(string)
		password, okPassword := secret.(string)
		if !okUser || !okPassword {
			return "", "", errors.New("AMQPLAIN auth info has no LOGIN or PASSWORD")
		}
		return user, password, nil
	}
	return "", "", fmt.Errorf("unknown authentication mechanism '%s'", mechanism)
}
