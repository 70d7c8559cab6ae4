package reprise

import (
	"errors"
	"fmt"
)

// Errors of publishing and of clients. Test for them with errors.Is.
var (
	// ErrNacked: the broker refused the message, in most cases because a queue
	// is full (x-overflow reject-publish). Some queues may have taken it.
	ErrNacked = errors.New("reprise: the broker refused the message (nack)")

	// ErrUnconfirmed: the broker's answer did not come. The message may have
	// arrived or not; publishing it again (with the same MessageID) may
	// duplicate it.
	ErrUnconfirmed = errors.New("reprise: the broker did not confirm the message")

	// ErrClosed: the Client or Worker was closed.
	ErrClosed = errors.New("reprise: closed")

	// ErrDrainTimeout: handlers were still running when a Worker gave up
	// waiting for them. Their messages are delivered again.
	ErrDrainTimeout = errors.New("reprise: handlers were still running at the end of the drain")

	// errGone: a channel or connection is closed, without the broker having
	// said why. Unlike ErrClosed it may be replaced.
	errGone = errors.New("reprise: channel or connection closed")

	// ErrInvalidMessage: the message cannot be encoded. Nothing was sent.
	ErrInvalidMessage = errors.New("reprise: invalid message")
)

// UnroutableError says that the broker could not route a message to any queue.
// Nothing was stored.
type UnroutableError struct {
	Exchange   string
	RoutingKey string
	Code       int    // AMQP reply code: 312 no route, 404 no such exchange
	Text       string // the broker's words
}

func (e *UnroutableError) Error() string {
	to := fmt.Sprintf("exchange %q with routing key %q leads to no queue", e.Exchange, e.RoutingKey)
	switch {
	case e.Code == 404:
		to = fmt.Sprintf("exchange %q does not exist", e.Exchange)
	case e.Exchange == "":
		to = fmt.Sprintf("queue %q does not exist", e.RoutingKey)
	}
	return fmt.Sprintf("reprise: unroutable: %s (%d %s)", to, e.Code, e.Text)
}

// ConnectError says that the broker answered but does not let this client in, or
// that the URL cannot be understood. Trying again does not help.
type ConnectError struct {
	Addr   string // host:port, "" when the URL did not say
	Reason string // what is wrong, and what to look at
	Err    error  // the broker's or the parser's own error, if any
}

func (e *ConnectError) Error() string {
	if e.Addr == "" {
		return "reprise: " + e.Reason
	}
	return fmt.Sprintf("reprise: %s: %s", e.Addr, e.Reason)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// DeclareError says that the broker refused to declare something.
type DeclareError struct {
	Kind   string // "queue", "exchange", "binding", or "topology" for all of it
	Name   string // "" for all of it
	Advice string // what differs, and what to do
	Err    error  // the broker's own error
}

func (e *DeclareError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("reprise: cannot declare the %s: %s (%v)", e.Kind, e.Advice, e.Err)
	}
	return fmt.Sprintf("reprise: cannot declare %s %q: %s (%v)", e.Kind, e.Name, e.Advice, e.Err)
}

func (e *DeclareError) Unwrap() error { return e.Err }
