package publish_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/publish"
)

// Every result of publishing and every refusal of a declaration has a meaning for the next attempt, also if it is wrapped.
func TestClassify(t *testing.T) {
	t.Parallel()
	declared := func(code int) error {
		return fmt.Errorf("cannot declare: %w", &amqpconn.Refusal{Code: code, Channel: true})
	}
	for _, tc := range []struct {
		err  error
		want publish.Refusal
	}{
		{nil, publish.Transient},
		{errors.New("unknown"), publish.Transient},
		{amqpconn.ErrNacked, publish.Transient},
		{amqpconn.ErrDisconnected, publish.Transient},
		{amqpconn.ErrClosed, publish.Transient},
		{&amqpconn.BlockedError{}, publish.Transient},
		{publish.ErrStalled, publish.Transient},
		{fmt.Errorf("%w: %w", publish.ErrUnconfirmed, &amqpconn.Refusal{Code: amqpconn.AccessRefused, Channel: true}), publish.Transient},
		{fmt.Errorf("%w: %w", amqpconn.ErrDisconnected, &amqpconn.Refusal{Code: amqpconn.InternalError}), publish.Transient},
		{&amqpconn.Refusal{Code: amqpconn.ConnectionForced}, publish.Transient},
		{declared(amqpconn.NotFound), publish.Transient},
		{declared(amqpconn.ResourceLocked), publish.Transient},
		{&publish.RefusedError{Code: amqpconn.ResourceLocked}, publish.Transient},
		{&publish.UnroutableError{Code: 312}, publish.Unrouted},
		{&publish.UnroutableError{Code: amqpconn.NotFound}, publish.Unrouted},
		{&publish.RefusedError{Code: amqpconn.AccessRefused}, publish.DestinationRefused},
		{&publish.RefusedError{Code: amqpconn.PreconditionFailed}, publish.DestinationRefused},
		{declared(amqpconn.AccessRefused), publish.DestinationRefused},
		{declared(amqpconn.PreconditionFailed), publish.DestinationRefused},
		{declared(amqpconn.InternalError), publish.DestinationRefused},
		{&publish.TooLargeError{Size: 2, Limit: 1}, publish.ContentRefused},
		{fmt.Errorf("%w: too many headers", amqpconn.ErrInvalidMessage), publish.ContentRefused},
	} {
		for _, err := range []error{tc.err, fmt.Errorf("wrapped: %w", tc.err)} {
			if tc.err == nil {
				err = nil
			}
			if got := publish.Classify(err); got != tc.want {
				t.Errorf("Classify(%T): got %d, want %d", tc.err, got, tc.want)
			}
		}
	}
}
