package publish

import (
	"errors"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Refusal is the meaning of a publishing error for another attempt to publish the same message.
type Refusal int

const (
	Transient          Refusal = iota // another attempt can succeed, or the broker may already have the message
	Unrouted                          // the destination does not exist; another attempt can succeed after a declaration
	DestinationRefused                // every attempt fails until somebody changes the broker; another destination may accept the message
	ContentRefused                    // every attempt fails, with every destination
)

// Classify returns the meaning of an error of Publish, or of the declaration of the destination. A queue that is full, a
// connection that is blocked or lost, and an exclusive queue of another connection are transient.
func Classify(err error) Refusal {
	_, tooLarge := errors.AsType[*TooLargeError](err)
	refused, isRefused := errors.AsType[*RefusedError](err)
	declared, isDeclaration := errors.AsType[*amqpconn.Refusal](err)
	switch {
	case err == nil, errors.Is(err, ErrUnconfirmed), errors.Is(err, amqpconn.ErrDisconnected):
		return Transient
	case tooLarge, errors.Is(err, amqpconn.ErrInvalidMessage):
		return ContentRefused
	case errors.Is(err, ErrUnroutable):
		return Unrouted
	case isRefused && refused.Code != amqpconn.InternalError && isPermanent(refused.Code), isDeclaration && isPermanent(declared.Code):
		return DestinationRefused
	}
	return Transient
}

// isPermanent reports whether the broker repeats a refusal with this code. RabbitMQ also sends 404 if the node of a queue
// is down, and 405 if a queue is exclusive to another connection.
func isPermanent(code int) bool {
	switch code {
	case amqpconn.AccessRefused, amqpconn.PreconditionFailed, amqpconn.InternalError:
		return true
	}
	return false
}
