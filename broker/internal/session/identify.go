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

// mechanisms are the ways to prove who one is: with a password or, over TLS, with a certificate that was verified.
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

// certificate returns the client's certificate if there is one and it was verified.
func (s *Session) certificate() *x509.Certificate {
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	// The handshake is over: the protocol header came through it.
	chains := conn.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return nil
	}
	return chains[0][0]
}

// refusal is the reason for which a login is refused. The client is not told it.
type refusal struct{ error }

// Unwrap is for [errors.As].
func (r refusal) Unwrap() error { return r.error }

func refused(user, reason string) refusal {
	return refusal{fmt.Errorf("user %q was refused: %s", user, reason)}
}

// identify returns who the client has proven to be. The error is a [refusal] if a login is refused.
func (s *Session) identify(mechanism, response string) (user string, err error) {
	control := s.config.Access
	if certificate := s.certificate(); mechanism == "EXTERNAL" && certificate != nil {
		user = s.config.CertificateUser(certificate)
		if _, known := control.User(user); !known {
			return "", refused(user, "the certificate is of nobody who is known")
		}
		return user, nil
	}
	user, password, err := credentials(mechanism, response)
	if err != nil {
		return "", err
	}
	peer, authentic := s.conn.RemoteAddr(), false
	if peer.Network() == "pipe" { // which is in this process
		authentic = control.Authenticate(user, password)
	} else {
		authentic, err = control.AwaitLogin(s.serving, peer.String(), user, password)
		if waits, ok := errors.AsType[*access.WaitError](err); ok {
			err = refusal{waits}
		}
		err = cmp.Or(err, s.allow(handshakeTimeout)) // a login that was held has as much time left as others
	}
	if err == nil && !authentic {
		err = refused(user, control.Refusal(peer.String(), user, password))
	}
	return user, err
}

// credentials reads the response of the mechanisms that carry a password.
func credentials(mechanism, response string) (user, password string, err error) {
	switch mechanism {
	case "PLAIN": // RFC 4616: an identity to act for, which is left empty, the user, the password
		parts := strings.Split(response, "\x00")
		if len(parts) != 3 || parts[0] != "" {
			return "", "", errors.New("malformed PLAIN response")
		}
		return parts[1], parts[2], nil
	case "AMQPLAIN": // a table without its length
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
