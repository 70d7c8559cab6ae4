package reprise

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/publish"
)

// Errors that Clients and Workers return. Test for them with errors.Is.
var (
	// ErrNacked is returned if the broker refused the message, usually because a queue is full (x-overflow reject-publish).
	// Other queues may have stored it.
	ErrNacked = amqpconn.ErrNacked

	// ErrUnroutable is returned if the queue or the exchange does not exist, or no queue matches the routing key: see
	// UnroutableError.
	ErrUnroutable = publish.ErrUnroutable

	// ErrUnconfirmed is returned if the message was sent but the broker did not confirm it. The broker may have stored it.
	// Publishing it again (with the same MessageID) may create a duplicate.
	ErrUnconfirmed = publish.ErrUnconfirmed

	// ErrBlocked is returned if the broker does not currently accept messages: see BlockedError.
	ErrBlocked = amqpconn.ErrBlocked

	// ErrStalled is returned if the message was not sent because earlier messages are not confirmed: messages to the same
	// exchange with the same routing key, or messages to too many destinations (see Client.Publish).
	ErrStalled = publish.ErrStalled

	// ErrDisconnected is returned if there is no connection to the broker, or the broker does not answer. The Client keeps
	// trying to connect.
	ErrDisconnected = amqpconn.ErrDisconnected

	// ErrClosed is returned if the Client is closed or the Worker has stopped.
	ErrClosed = amqpconn.ErrClosed

	// ErrDrainTimeout is returned if handlers were still running when a Worker stopped waiting for them. The broker
	// redelivers their messages.
	ErrDrainTimeout = consume.ErrDrainTimeout

	// ErrInvalidMessage is returned if the message cannot be encoded, or is otherwise invalid. It was not sent.
	ErrInvalidMessage = amqpconn.ErrInvalidMessage

	// ErrCopyRefused is returned by Worker.Status and Worker.Healthy while the worker holds messages that it can neither
	// retry nor park, because the broker refuses their copies, and their queue does not dead-letter into the failed queue, or because a
	// full queue has refused the copies for a minute (then also ErrNacked). The error string contains the reason.
	ErrCopyRefused = errors.New("reprise: broker refuses copies of failed messages")

	// ErrStillRunning is returned by Worker.Status and Worker.Healthy while the broker has redelivered a message whose
	// earlier delivery a handler of the worker still processes. The worker does not handle the message again until the
	// handler has returned.
	ErrStillRunning = errors.New("reprise: handlers still process messages that the broker has redelivered")

	// ErrLeaseLost is the cause of the cancellation of a handler's context if the worker was disconnected for longer than its
	// Lease. Another worker may already process the message. The result of the attempt is ignored.
	ErrLeaseLost = consume.ErrLeaseLost

	// ErrNoLease is returned by SaveCheckpoint if the worker has no Lease.
	ErrNoLease = errors.New("reprise: worker cannot store checkpoints without a Lease (set WorkerConfig.Lease)")

	// ErrPeekLimit is returned by Client.Peek if it stopped at a message with MaxPeeks failed deliveries.
	ErrPeekLimit = errors.New("reprise: message was requeued too often for another Peek")
)

// UnroutableError reports that the broker could not route a message to any queue. The message was not stored. A worker
// declares its queue when it starts. A publisher that may start earlier should call Client.Declare first. An
// UnroutableError matches ErrUnroutable. Its fields are
//
//	Exchange, RoutingKey string
//	Code                 int    // AMQP reply code: 312 no route, 404 exchange or queue not found
//	Text                 string // reply text from the broker
type UnroutableError = publish.UnroutableError

// RefusedError reports that the broker refuses a message for a reason other than the state of a queue. Examples are a
// user without write permission for the exchange, a UserID that is the name of another user, and an internal exchange.
// The message was not stored. A further attempt fails in the same way until the cause is fixed. The fields of a
// RefusedError are
//
//	Exchange, RoutingKey string
//	Code                 int    // AMQP reply code: 403 access refused, 406 precondition failed
//	Text                 string // reply text from the broker
type RefusedError = publish.RefusedError

// QueueError reports that the broker refused a request about a queue because the queue does not exist, or the user or
// connection may not use it.
type QueueError struct {
	Queue string
	Code  int    // AMQP reply code: 404 not found, 403 access refused, 405 exclusive to another connection
	Text  string // reply text from the broker
}

func (e *QueueError) Error() string {
	if e.Code == 404 {
		return fmt.Sprintf("reprise: queue %q not found (%d %s)", e.Queue, e.Code, e.Text)
	}
	return fmt.Sprintf("reprise: the broker refused a request about queue %q (%d %s)", e.Queue, e.Code, e.Text)
}

// TooLargeError reports that the body of a message exceeds the limit of the broker (max_message_size): by default 16
// MiB in RabbitMQ 4, and 128 MiB in earlier versions. The message was not stored. Save such large data in a file store,
// and publish a reference to the file. The fields of a TooLargeError are
//
//	Size  int // size of the body in bytes
//	Limit int // the broker's limit in bytes
//
// https://www.rabbitmq.com/docs/configure#config-items
type TooLargeError = publish.TooLargeError

// BlockedError reports that the broker temporarily does not accept messages, because of a memory or disk alarm
// (connection.blocked). Consumers are not affected. A BlockedError matches ErrBlocked. Its field is
//
//	Reason string // text from the broker, such as "low on memory"; "" if it is unknown
//
// https://www.rabbitmq.com/docs/connection-blocked
type BlockedError = amqpconn.BlockedError

// ConnectError reports that the broker refuses this client, that TLS fails, or that the URL is invalid. A further
// attempt fails in the same way until the cause is fixed. The error never contains the password. Its fields are
//
//	Addr   string // host:port, "" if it is unknown
//	Reason string // the problem, and advice
//	Err    error  // the error from the broker or the parser, if any
type ConnectError = amqpconn.ConnectError

// DeclareError reports that the broker refused to declare an object.
type DeclareError struct {
	Kind   string // "queue", "exchange", "binding", or "topology" for the whole topology
	Name   string // "" for the whole topology
	Advice string // the problem, and advice
	Err    error  // the broker's error
}

func (e *DeclareError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("reprise: cannot declare the %s: %s (%v)", e.Kind, e.Advice, e.Err)
	}
	return fmt.Sprintf("reprise: cannot declare %s %q: %s (%v)", e.Kind, e.Name, e.Advice, e.Err)
}

func (e *DeclareError) Unwrap() error { return e.Err }

// PausedError reports a pause that an operator has requested. Worker.Status returns it during such a pause, and it is
// the Err of EventPaused.
type PausedError struct {
	Of     string    // "queue" if all workers of the queue are paused, "worker" if only this worker is
	By     string    // name of the operator; not verified
	Reason string    // given by the operator; can be empty
	At     time.Time // when the operator requested the pause
	Until  time.Time // zero: until an operator resumes the queue or the worker, or unknown
}

func (e *PausedError) Error() string { return "reprise: " + protocol.Pause(*e).String() }

// errPaused is the reason for a pause without a specific reason.
var errPaused = errors.New("reprise: paused")
