package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Message is one message on its way to the broker.
type Message struct {
	amqpconn.Publication

	// Reroute, if not nil, is called when the message is about to be written. It may change
	// the exchange, the routing key and the headers.
	Reroute func(m *Message)

	// Began is zero where nobody wants to know how long publishing takes.
	Began time.Time

	state   atomic.Int32  // queued, then written or abandoned
	beat    int           // of its channel when it was written
	before  uint64        // the number of answers when it was written
	lane    *lane         // to which its caller handed it over
	assumed bool          // it has counted as proven since it had no answer in time
	done    chan struct{} // closed when err is known
	err     error
	took    time.Duration
}

const (
	queued int32 = iota
	written
	abandoned // its caller has given up
)

// NewMessage returns a message to publish. content must not change until it has a result.
func NewMessage(exchange, key string, content *amqpconn.Message) *Message {
	return &Message{Publication: amqpconn.Publication{Exchange: exchange, RoutingKey: key, Message: content}, done: make(chan struct{})}
}

// Took returns how long the message was on its way until now, or until it had a result.
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

// refuse resolves a message that was not written, and will not be. It does nothing if the
// caller has given up.
func (m *Message) refuse(err error) {
	if m.state.CompareAndSwap(queued, abandoned) {
		m.resolve(err)
	}
}

// abandon reports whether the message was not, and will not be, written.
func (m *Message) abandon() bool { return m.state.Swap(abandoned) == queued }

// destination is where a message is published to.
type destination struct{ exchange, key string }

func (m *Message) destination() destination { return destination{m.Exchange, m.RoutingKey} }

// or returns the result if there is one, and err if not.
func (m *Message) or(err error) error {
	select {
	case <-m.done:
		return m.err
	default:
		return err
	}
}

// NotSent is the error of a message that was not sent before ctx ended.
func NotSent(ctx context.Context) error {
	return fmt.Errorf("reprise: not sent: %w", context.Cause(ctx))
}
