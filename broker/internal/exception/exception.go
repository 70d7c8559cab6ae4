// Package exception defines the errors of AMQP 0-9-1, which consist of a reply code and a reply text.
//
// The code determines the scope of an error. A soft error closes the channel. A hard error closes the connection (AMQP
// 0-9-1, section 1.2, "hard error" and "soft error"). Some clients compare error strings, so the strings are identical
// to RabbitMQ's and begin with the name of the code: "NOT_FOUND - no queue 'x' in vhost '/'".
package exception

import "fmt"

// Code is an AMQP 0-9-1 reply code.
type Code uint16

// Reply codes, with the names from the specification.
const (
	Success            Code = 200
	NoRoute            Code = 312
	ConnectionForced   Code = 320
	AccessRefused      Code = 403
	NotFound           Code = 404
	ResourceLocked     Code = 405
	PreconditionFailed Code = 406
	FrameError         Code = 501
	SyntaxError        Code = 502
	CommandInvalid     Code = 503
	ChannelError       Code = 504
	UnexpectedFrame    Code = 505
	ResourceError      Code = 506
	NotAllowed         Code = 530
	NotImplemented     Code = 540
	InternalError      Code = 541
)

var names = map[Code]string{
	Success:            "OK",
	NoRoute:            "NO_ROUTE",
	ConnectionForced:   "CONNECTION_FORCED",
	AccessRefused:      "ACCESS_REFUSED",
	NotFound:           "NOT_FOUND",
	ResourceLocked:     "RESOURCE_LOCKED",
	PreconditionFailed: "PRECONDITION_FAILED",
	FrameError:         "FRAME_ERROR",
	SyntaxError:        "SYNTAX_ERROR",
	CommandInvalid:     "COMMAND_INVALID",
	ChannelError:       "CHANNEL_ERROR",
	UnexpectedFrame:    "UNEXPECTED_FRAME",
	ResourceError:      "RESOURCE_ERROR",
	NotAllowed:         "NOT_ALLOWED",
	NotImplemented:     "NOT_IMPLEMENTED",
	InternalError:      "INTERNAL_ERROR",
}

// String returns the name of the code from the specification, in upper case with underscores, as in RabbitMQ.
func (c Code) String() string {
	if name, ok := names[c]; ok {
		return name
	}
	return fmt.Sprintf("CODE_%d", uint16(c))
}

// Hard reports whether an error with this code closes the whole connection, instead of only the channel.
func (c Code) Hard() bool {
	return c == ConnectionForced || c >= FrameError
}

// Error is an error that the broker sends to the client.
type Error struct {
	Code Code
	Text string // without the name of the code
}

// New returns an error with a formatted text.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the reply text, with the name of the code.
func (e *Error) Error() string { return e.Code.String() + " - " + e.Text }
