package publish

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Package reprise exports and documents these errors of publishing.
var (
	ErrUnconfirmed = errors.New("reprise: the broker did not confirm the message")
	ErrStalled     = errors.New("reprise: earlier messages are not confirmed")
	ErrUnroutable  = errors.New("reprise: unroutable")
)

// UnroutableError reports that the broker could not route a message to any queue.
type UnroutableError struct {
	Exchange   string
	RoutingKey string
	Code       int    // AMQP reply code: 312 no route, 404 no such exchange or queue
	Text       string // AMQP reply text
}

func (e *UnroutableError) Error() string {
	to := fmt.Sprintf("no queue is bound to exchange %q for routing key %q", e.Exchange, e.RoutingKey)
	switch {
	case e.Exchange == "":
		to = fmt.Sprintf("queue %q does not exist", e.RoutingKey)
	case e.Code == amqpconn.NotFound:
		to = fmt.Sprintf("exchange %q does not exist", e.Exchange)
	}
	return fmt.Sprintf("reprise: unroutable: %s (%d %s)", to, e.Code, e.Text)
}

// Is reports whether target is ErrUnroutable.
func (e *UnroutableError) Is(target error) bool { return target == ErrUnroutable }

// RefusedError reports that the broker does not accept a message.
type RefusedError struct {
	Exchange   string
	RoutingKey string
	Code       int    // AMQP reply code: 403 access refused, 406 precondition failed
	Text       string // AMQP reply text
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("reprise: the broker refused the message for exchange %q with routing key %q (%d %s)", e.Exchange, e.RoutingKey, e.Code, e.Text)
}

// TooLargeError reports that the body of a message exceeds the broker's limit.
type TooLargeError struct {
	Size  int // size of the body in bytes
	Limit int // limit of the broker in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("reprise: body must have at most %d bytes, the broker's max_message_size: got %d "+
		"(store the data elsewhere, and publish a reference to it)", e.Limit, e.Size)
}

// causeFor returns the error of m if the broker has closed the channel because of m, or nil if another message may be
// the reason. sole reports whether m was the only message in flight.
func causeFor(m *Message, refusal *amqpconn.Refusal, sole bool) error {
	if limit := sizeLimit(refusal); limit > 0 {
		return tooLarge(m, limit)
	}
	switch {
	case !sole:
		return nil
	case refusal.Code == amqpconn.NotFound:
		return &UnroutableError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Code: refusal.Code, Text: refusal.Text}
	}
	return &RefusedError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Code: refusal.Code, Text: refusal.Text}
}

var sizeRefused = regexp.MustCompile(`message size [0-9]+ is larger than configured max size ([0-9]+)`)

// sizeLimit returns the maximum size of a body if the broker has refused a larger body, and 0 otherwise.
func sizeLimit(refusal *amqpconn.Refusal) int {
	m := sizeRefused.FindStringSubmatch(refusal.Text)
	if m == nil {
		return 0
	}
	limit, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return limit
}

// tooLarge returns an error if the body of m is larger than limit. A limit of 0 means that the limit is unknown.
func tooLarge(m *Message, limit int) error {
	if size := len(m.Message.Body); limit > 0 && size > limit {
		return &TooLargeError{Size: size, Limit: limit}
	}
	return nil
}
