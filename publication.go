package reprise

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// publication is one message on its way to the broker.
type publication struct {
	exchange, key string
	msg           amqpconn.Message
	wait          *wait            // nil if it is to arrive at once
	state         atomic.Int32     // queued, then written or abandoned
	trial         trial            // it was written in
	detour        *detour          // that it takes; guarded by the detours
	beat          int              // of its channel when it was written, and
	age           int              // how many there were until it was answered
	heard         uint64           // see detours
	returned      *UnroutableError // set by a return, before the confirm
	answered      bool             // there was an answer before there was a confirmation
	confirmation  confirmation     // says, once there was an answer, which
	began         time.Time        // zero where nobody wants to know how long it took
	done          chan struct{}    // closed when err is known
	err           error
	took          time.Duration
}

// confirmation is an *amqp.DeferredConfirmation.
type confirmation interface {
	Done() <-chan struct{}
	Acked() bool
}

const (
	queued int32 = iota
	written
	abandoned // its caller has given up
)

func newPublication(exchange, key string, msg amqpconn.Message) *publication {
	return &publication{exchange: exchange, key: key, msg: msg, done: make(chan struct{})}
}

func (p *publication) resolve(err error) {
	p.err = err
	if !p.began.IsZero() {
		p.took = time.Since(p.began)
	}
	close(p.done)
}

// abandon reports whether the message was not, and will not be, written.
func (p *publication) abandon() bool { return p.state.Swap(abandoned) == queued }

// destination is where a message is published to.
type destination struct{ exchange, key string }

func (p *publication) destination() destination { return destination{p.exchange, p.key} }

// or returns the result if there is one, and err if not.
func (p *publication) or(err error) error {
	select {
	case <-p.done:
		return p.err
	default:
		return err
	}
}

func notSent(ctx context.Context) error {
	return fmt.Errorf("reprise: not sent: %w", context.Cause(ctx))
}
