package amqpconn

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The error that ended returns is readable, and wraps the error of the AMQP client.
func TestEndedDescribesReason(t *testing.T) {
	for want, err := range map[string]*amqp.Error{
		"the broker or a proxy closed the connection without a reason (EOF)":                                                  {Code: 501, Reason: "EOF"},
		"the connection broke: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer":                             {Code: 501, Reason: "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"},
		"no data or heartbeat received from the broker in time (read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout)":              {Code: 501, Reason: "read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout"},
		"the broker closed the connection: CONNECTION_FORCED - broker forced connection closure with reason 'shutdown' (320)": {Code: 320, Reason: "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", Server: true},
		"the broker closed the channel: PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out (406)":          {Code: 406, Reason: "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out", Server: true, Recover: true},
	} {
		got := ended(err)
		if got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if e, ok := errors.AsType[*amqp.Error](got); !ok || e != err {
			t.Errorf("%q does not wrap the client's error", got)
		}
	}
	if other := errors.New("no route to host"); ended(other) != other {
		t.Error("ended changed an error that is not an *amqp.Error")
	}
}
