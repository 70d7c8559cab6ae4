package reprise

import (
	"fmt"
	"io"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// endedError is why a connection or channel has ended, in words for people: the AMQP
// client says `Exception (501) Reason: "EOF"` of a connection that was cut.
type endedError struct{ err *amqp.Error }

// inWords puts what the AMQP client says into words. Other errors are returned as they
// are.
func inWords(err error) error {
	if e, ok := err.(*amqp.Error); ok && e != nil && e != amqp.ErrClosed {
		return &endedError{e}
	}
	return err
}

func (e *endedError) Error() string {
	what := "connection"
	if e.err.Recover {
		what = "channel"
	}
	switch reason := e.err.Reason; {
	case e.err.Server:
		return fmt.Sprintf("the broker closed the %s: %s (%d)", what, reason, e.err.Code)
	case reason == io.EOF.Error():
		return "the broker, or what is between, closed the connection without a word (EOF)"
	case strings.HasSuffix(reason, "i/o timeout"):
		return fmt.Sprintf("nothing came from the broker for too long, not even a heartbeat (%s)", reason)
	default: // of the network, or what could not be read
		return "the connection broke: " + reason
	}
}

// Unwrap returns the client's error.
func (e *endedError) Unwrap() error { return e.err }
