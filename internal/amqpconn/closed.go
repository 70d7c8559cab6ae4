package amqpconn

import (
	"fmt"
	"io"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// endedError describes why a connection or channel has closed. For an interrupted connection, the client reports only
// `Exception (501) Reason: "EOF"`.
type endedError struct {
	err   error // *amqp.Error or *Refusal
	cause *amqp.Error
}

// ended converts an error of the client to an error that describes why a connection or channel has closed. It returns
// other errors unchanged.
func ended(err error) error {
	e, ok := err.(*amqp.Error)
	switch {
	case !ok || e == nil:
		return err
	case e == amqp.ErrClosed:
		return ErrGone
	case e.Server:
		return &endedError{translated(e), e}
	}
	return &endedError{e, e}
}

func (e *endedError) Error() string {
	what := "connection"
	if e.cause.Recover {
		what = "channel"
	}
	switch reason := e.cause.Reason; {
	case e.cause.Server:
		return fmt.Sprintf("the broker closed the %s: %s (%d)", what, reason, e.cause.Code)
	case reason == io.EOF.Error():
		return "the broker or a proxy closed the connection without a reason (EOF)"
	case strings.HasSuffix(reason, "i/o timeout"):
		return fmt.Sprintf("no data or heartbeat received from the broker in time (%s)", reason)
	default: // a network error or an unreadable frame
		return "the connection broke: " + reason
	}
}

// Unwrap returns the client's error, or the broker's refusal.
func (e *endedError) Unwrap() error { return e.err }
