package amqpconn

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpclient"
)

// Errors of connections, which package reprise exports.
var (
	ErrClosed         = errors.New("reprise: closed")
	ErrDisconnected   = errors.New("reprise: not connected to the broker")
	ErrBlocked        = errors.New("reprise: broker blocks publishers")
	ErrInvalidMessage = errors.New("reprise: invalid message")
)

// Errors that package reprise does not export.
var (
	// ErrGone means that a channel or connection is closed and the broker gave no reason. A new channel or connection
	// may replace it, unlike after ErrClosed.
	ErrGone = errors.New("reprise: channel or connection closed")

	// ErrSilent means that the broker did not answer a request in time.
	ErrSilent = errors.New("the broker did not answer in time")

	// ErrChannelMax means that the connection has reached its maximum number of channels.
	ErrChannelMax error = amqp.ErrChannelMax

	// ErrEncode means that AMQP or the frames of the connection cannot represent a request, which was not written.
	ErrEncode = amqpclient.ErrEncode

	// ErrExpired means that a connection was not available in time.
	ErrExpired = errors.New("reprise: timed out waiting for a connection")
)

// AMQP reply codes.
const (
	ConnectionForced   = amqp.ConnectionForced
	AccessRefused      = amqp.AccessRefused
	NotFound           = amqp.NotFound
	ResourceLocked     = amqp.ResourceLocked
	PreconditionFailed = amqp.PreconditionFailed
	InternalError      = amqp.InternalError
)

// Refusal is the broker's reason for closing a channel or a connection.
type Refusal struct {
	Code    int    // AMQP reply code
	Text    string // the reason from the broker
	Channel bool   // whether only the channel is closed

	err *amqp.Error
}

func (r *Refusal) Error() string { return r.err.Error() }
func (r *Refusal) Unwrap() error { return r.err }

// RefusedChannel returns the broker's reason if err reports that the broker has closed a channel but not its
// connection.
func RefusedChannel(err error) (*Refusal, bool) {
	r, ok := errors.AsType[*Refusal](err)
	return r, ok && r.Channel
}

// translated converts an error of the client to an error of this package.
func translated(err error) error {
	e, ok := err.(*amqp.Error)
	switch {
	case !ok || e == nil:
		return err
	case e == amqp.ErrClosed:
		return ErrGone
	case e == amqp.ErrChannelMax:
		return ErrChannelMax
	case e.Server:
		return &Refusal{Code: e.Code, Text: e.Reason, Channel: e.Recover, err: e}
	}
	return ended(e)
}

// BlockedError reports that the broker has blocked the connection.
type BlockedError struct {
	Reason string // the reason from the broker, such as "low on memory"; "" if it gave none
}

func (e *BlockedError) Error() string {
	if e.Reason == "" {
		return ErrBlocked.Error() + " (reason unknown)"
	}
	return ErrBlocked.Error() + ": " + e.Reason
}

// Is reports whether target is ErrBlocked.
func (e *BlockedError) Is(target error) bool { return target == ErrBlocked }

// ConnectError reports that further attempts to connect cannot succeed.
type ConnectError struct {
	Addr   string // host:port, "" if the error concerns the URL
	Reason string // the fault and advice
	Err    error  // the error of the broker or the parser, if any
}

func (e *ConnectError) Error() string {
	if e.Addr == "" {
		return "reprise: " + e.Reason
	}
	return fmt.Sprintf("reprise: %s: %s", e.Addr, e.Reason)
}

func (e *ConnectError) Unwrap() error { return e.Err }
