package amqpclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Error is the reason why a connection or a channel has closed.
type Error struct {
	Code    int    // AMQP reply code
	Text    string // reason
	Server  bool   // whether the broker has closed it; otherwise the client has detected a fault
	Channel bool   // whether only the channel is closed
	Lost    bool   // whether the network has failed; otherwise, without Server, the broker has sent invalid data

	err error // of the network or the decoder; may be nil
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }
func (e *Error) Unwrap() error { return e.err }

// Reply codes of AMQP 0-9-1.
const (
	frameError      = 501
	unexpectedFrame = 505
)

var (
	// ErrClosed means that the connection or the channel is closed, or that this side has closed it.
	ErrClosed = errors.New("amqpclient: closed")

	// ErrEncode means that a method or a message cannot be encoded. Nothing was written.
	ErrEncode = errors.New("cannot be encoded")

	// errInterrupted means that the connection has closed while data was written.
	errInterrupted = errors.New("amqpclient: closed while data was written")

	// ErrMechanism means that the broker supports none of the login mechanisms.
	ErrMechanism = errors.New("amqpclient: the broker supports none of the login mechanisms")

	// ErrLogin means that the broker has closed the connection after the login without a reason, as RabbitMQ does if it
	// refuses the credentials of clients without the capability authentication_failure_close.
	ErrLogin = errors.New("amqpclient: the broker closed the connection after the login")

	// ErrChannelMax means that all channels of a connection are open.
	ErrChannelMax = errors.New("amqpclient: all channels of the connection are open")
)

// broken returns the error for a network that fails.
func broken(err error) *Error {
	return &Error{Code: frameError, Text: err.Error(), Lost: true, err: err}
}

// malformed returns the error for data that the client cannot read.
func malformed(err error) *Error { return &Error{Code: frameError, Text: err.Error(), err: err} }

// closedBy returns the reason that the broker gives. Brokers cut long texts, also within a character.
func closedBy(m *amqpwire.ConnectionClose) *Error {
	return &Error{Code: int(m.ReplyCode), Text: strings.ToValidUTF8(m.ReplyText, "\uFFFD"), Server: true}
}

// unexpected returns the error for a frame or a method that violates the protocol.
func unexpected(format string, args ...any) *Error {
	return &Error{Code: unexpectedFrame, Text: fmt.Sprintf(format, args...)}
}
