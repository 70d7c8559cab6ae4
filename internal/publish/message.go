package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Message is a message to publish.
type Message struct {
	amqpconn.Publication

	// Reroute, if not nil, is called just before the message is written. It may change the exchange, the routing key and
	// the headers.
	Reroute func(m *Message)

	// Began is the time at which publishing started. It is zero if the caller does not measure the duration.
	Began time.Time

	state         atomic.Int32  // queued; written; abandoned
	writtenAt     int           // ticks of the channel after the write
	answersBefore uint64        // Publisher.answers before the write
	lane          *lane         // lane of the caller's request
	assumed       bool          // counts as proven because its answer was late
	done          chan struct{} // closed when err is known
	err           error
	took          time.Duration
}

const (
	queued int32 = iota
	written
	abandoned // the caller has given up
)

// NewMessage returns a message to publish. The caller must not change content before the result is known.
func NewMessage(exchange, key string, content *amqpconn.Message) *Message {
	return &Message{Publication: amqpconn.Publication{Exchange: exchange, RoutingKey: key, Message: content}, done: make(chan struct{})}
}

// Took returns the time from Began until the result, or until now if the result is unknown.
func (m *Message) Took() time.Duration {
	select {
	case <-m.done:
		return m.took
	default:
		return time.Since(m.Began)
	}
}

func (m *Message) resolve(err error) {
	m.err = err
	if !m.Began.IsZero() {
		m.took = time.Since(m.Began)
	}
	close(m.done)
}

// refuse resolves a message that will not be written. It has no effect if the
// caller has given up.
func (m *Message) refuse(err error) {
	if m.state.CompareAndSwap(queued, abandoned) {
		m.resolve(err)
	}
}

// abandon prevents the write of a queued message. It reports whether the message was still queued.
func (m *Message) abandon() bool { return m.state.Swap(abandoned) == queued }

// destination is the target of a message.
type destination struct{ exchange, key string }

func (m *Message) destination() destination { return destination{m.Exchange, m.RoutingKey} }

// or returns the result of the message, or err if the result is unknown.
func (m *Message) or(err error) error {
	select {
	case <-m.done:
		return m.err
	default:
		return err
	}
}

// NotSent returns the error for a message that was not sent before ctx was done.
func NotSent(ctx context.Context) error {
	return fmt.Errorf("reprise: message not sent: %w", context.Cause(ctx))
}
