package handler

import (
	"bytes"
	"context"
	"fmt"

	"github.com/reprisemq/reprise"
)

// Results receives what successful handlers return. A handler without Results has no result.
type Results struct {
	// Max is the maximum size of a result, in bytes.
	Max int

	// Send sends the result of a message. An error is the result of the attempt.
	Send func(context.Context, *reprise.Delivery, Result) error
}

// Result is the result of a handler.
type Result struct {
	Body        []byte
	ContentType string // "": unknown
}

// send passes on the result of a successful attempt. A larger result parks the message, because the next attempt would have the same
// result.
func (r *Results) send(ctx context.Context, m *reprise.Delivery, result Result) error {
	if len(result.Body) > r.Max {
		return reprise.Park(fmt.Errorf("result of the handler must have at most %d bytes (raise max_size of results)", r.Max))
	}
	return r.Send(ctx, m, result)
}

// prefix keeps the first bytes of its input, one more than the limit, so that the excess is known.
type prefix struct {
	bytes.Buffer
	limit int
}

func (p *prefix) Write(b []byte) (int, error) {
	_, _ = p.Buffer.Write(b[:min(len(b), p.limit+1-p.Len())])
	return len(b), nil
}
