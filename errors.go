package reprise

import (
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// Errors of publishing and of clients. Test for them with errors.Is.
var (
	// ErrNacked: the broker refused the message, in most cases because a queue
	// is full (x-overflow reject-publish). Some queues may have taken it.
	ErrNacked = amqpconn.ErrNacked

	// ErrUnroutable: no queue, or no exchange, of that name: see UnroutableError.
	ErrUnroutable = publish.ErrUnroutable

	// ErrUnconfirmed: the message was sent, and the broker's answer did not
	// come. It may have arrived or not; publishing it again (with the same
	// MessageID) may duplicate it.
	ErrUnconfirmed = publish.ErrUnconfirmed

	// ErrBlocked: the broker takes no messages at present: see BlockedError.
	ErrBlocked = amqpconn.ErrBlocked

	// ErrStalled: the message was not sent, since what was published before, to the
	// same exchange with the same routing key or altogether, is not confirmed.
	ErrStalled = publish.ErrStalled

	// ErrDisconnected: there is no connection to the broker, or no answer comes
	// over it. The Client goes on trying to connect.
	ErrDisconnected = amqpconn.ErrDisconnected

	// ErrClosed: the Client or Worker was closed.
	ErrClosed = amqpconn.ErrClosed

	// ErrDrainTimeout: handlers were still running when a Worker gave up
	// waiting for them. Their messages are delivered again.
	ErrDrainTimeout = consume.ErrDrainTimeout

	// ErrInvalidMessage: the message cannot be encoded. Nothing was sent.
	ErrInvalidMessage = amqpconn.ErrInvalidMessage
)

// UnroutableError reports that the broker could not route a message to any queue.
// Nothing was stored. A worker declares its queue when it starts: a publisher that may
// start before it calls Client.Declare first, see there. It matches ErrUnroutable. Its
// fields are
//
//	Exchange, RoutingKey string
//	Code                 int    // AMQP reply code: 312 no route, 404 no such exchange or queue
//	Text                 string // the broker's words
type UnroutableError = publish.UnroutableError

// RefusedError reports that the broker does not accept a message, whatever becomes of the
// queues: the user may not write to the exchange, the UserID is another's, the
// exchange is internal. Nothing was stored. Publishing it again fails again, until
// somebody has changed something. Its fields are
//
//	Exchange, RoutingKey string
//	Code                 int    // AMQP reply code: 403 access refused, 406 precondition failed
//	Text                 string // the broker's words
type RefusedError = publish.RefusedError

// QueueError says that the broker refused to tell about a queue: there is none of that
// name, or this user or connection may not use it.
type QueueError struct {
	Queue string
	Code  int    // AMQP reply code: 404 there is none, 403 access refused, 405 it is another connection's alone
	Text  string // the broker's words
}

func (e *QueueError) Error() string {
	if e.Code == 404 {
		return fmt.Sprintf("reprise: there is no queue %q (%d %s)", e.Queue, e.Code, e.Text)
	}
	return fmt.Sprintf("reprise: the broker tells nothing about queue %q (%d %s)", e.Queue, e.Code, e.Text)
}

// TooLargeError reports that a message's body is larger than the broker takes: 16 MiB by
// default with RabbitMQ 4, 128 MiB before (max_message_size). Nothing was stored.
// Anything that large belongs in a file store, with a reference to it in the message. Its
// fields are
//
//	Size  int // of the body, in bytes
//	Limit int // the broker's
//
// https://www.rabbitmq.com/docs/configure#config-items
type TooLargeError = publish.TooLargeError

// BlockedError reports that the broker does not take messages for the time being: it is
// short of memory or disk, and has said so (connection.blocked). Consuming is not
// affected. It matches ErrBlocked. Its field is
//
//	Reason string // the broker's words, such as "low on memory"; "" if it has not said why
//
// https://www.rabbitmq.com/docs/connection-blocked
type BlockedError = amqpconn.BlockedError

// ConnectError reports that the broker answered but does not let this client in, that
// TLS fails, or that the URL cannot be understood. Trying again does not help.
// It never has the password in it. Its fields are
//
//	Addr   string // host:port, "" when the URL did not say
//	Reason string // what is wrong, and what to look at
//	Err    error  // the broker's or the parser's own error, if any
type ConnectError = amqpconn.ConnectError

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

// PausedError is the reason for a pause that an operator has ordered: the Err of EventPaused, and the result of
// Worker.Paused. Its fields are those of topology.Pause.
type PausedError struct{ topology.Pause }

func (e *PausedError) Error() string { return "reprise: " + e.String() }

// errPaused is the reason for a pause without one.
var errPaused = errors.New("reprise: paused")
