package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

const (
	// maxInFlight bounds the messages in flight on the fast channel. A window of 32 halves the
	// throughput; 1,024 costs nothing.
	maxInFlight = 1024

	// bulkheadInFlight bounds the messages in flight on a bulkhead. With 32 of them unconfirmed
	// for a queue without a majority, RabbitMQ stops reading the connection after some hundred
	// more (measured with 3.10 and 4.3; rabbit_fifo_client).
	bulkheadInFlight = 16

	// maxQueued is how many messages may wait in a lane besides their callers, so that these
	// need not be woken twice.
	maxQueued = 64

	// maxBulkheads bounds the bulkheads for late destinations. Where more destinations than
	// that are late, they share bulkheads: see Publisher.separate. A bulkhead has up to two
	// channels for long: one that was retired when its oldest copy was awaitedFor old, and a
	// successor, whose oldest copy gets that old only after the newest copy of the retired one.
	// The bulkheads so take 64 of the 128 extra channels of a connection. The other half is for
	// retired channels of the fast lane, which would otherwise wait (see lane.keep), and with it
	// all that is published.
	maxBulkheads = 32

	// maxLate bounds the late destinations that are remembered. Routing keys can be unbounded.
	// A destination that is forgotten takes the fast channel once more, and is late again.
	maxLate = 1000
)

// Config configures a Publisher.
type Config struct {
	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Timeout   time.Duration // for sending, and for a confirm
	Reconnect backoff.Backoff
}

// Publisher publishes messages on a link.
//
//	Send ─► lane ─► writer: tag, write ─────────────► broker
//	                                                     │
//	Await ◄── done ◄── listener: Answered, Result ◄──────┘
//
// One goroutine writes for each lane, so that no lock is held across a write that the
// broker's flow control may block: callers give up by their own context. Messages of a lane
// are written in the order in which they were sent.
type Publisher struct {
	cfg    Config
	ctx    context.Context // ends when the link is about to close
	closed chan struct{}   // closed when the fast lane has ended

	fast      *lane
	probe     *lane // for what is unproven, one at a time
	bulkheads []*lane

	answers atomic.Uint64 // the number of answers
	silent  atomic.Bool   // there was no answer while one became late, nor since then
	anyLate atomic.Bool
	proven  proven
	timers  sync.Pool // of *time.Timer, which take three allocations

	mu   sync.Mutex
	late map[destination]*lane
}

// New starts a publisher, which ends with ctx.
func New(ctx context.Context, cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, ctx: ctx, closed: make(chan struct{}), late: map[destination]*lane{}}
	p.proven.forget(cfg.Link.User())
	p.fast = p.newLane(fastLane, maxInFlight)
	p.probe = p.newLane(probeLane, 1)
	_ = cfg.Tasks.Go(func() { // the client is not closed yet
		defer close(p.closed)
		p.fast.run()
	})
	_ = cfg.Tasks.Go(p.probe.run)
	return p
}

// lateAfter is after how long an answer is late: a third of the timeout, so that a message
// behind it is still in time, and 10 s at most, so that RabbitMQ, which refuses after 65 s
// what a queue without a majority does not take, is late.
func (p *Publisher) lateAfter() time.Duration { return min(p.cfg.Timeout/3, 10*time.Second) }

// Silent reports whether a message is late, and nothing was confirmed since.
func (p *Publisher) Silent() bool { return p.silent.Load() }

// Publish returns nil when the broker has confirmed the message and did not return it. If
// late is not nil, it is called when the answer is late, and Publish goes on waiting: a broker
// that is slow would only be slower for getting the message again. The answer comes, or the
// channel ends.
func (p *Publisher) Publish(ctx context.Context, m *Message, late func()) error {
	timer := p.Timer()
	defer p.Release(timer)
	if err := p.Send(ctx, m, timer.C); err != nil {
		return err
	}
	return p.Await(ctx, m, timer.C, late)
}

// Timer returns a timer of the Timeout, for Release when it is not needed any more.
func (p *Publisher) Timer() *time.Timer {
	t, ok := p.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(p.cfg.Timeout)
	}
	t.Reset(p.cfg.Timeout)
	return t
}

// Release takes back a timer.
func (p *Publisher) Release(t *time.Timer) {
	t.Stop()
	p.timers.Put(t)
}

// Send hands a message over to be written. After an error it will not be.
func (p *Publisher) Send(ctx context.Context, m *Message, expired <-chan time.Time) error {
	m.lane = p.lane(m)
	return p.send(ctx, m, expired)
}

func (p *Publisher) send(ctx context.Context, m *Message, expired <-chan time.Time) error {
	select {
	case m.lane.requests <- m:
		return nil
	case <-p.closed:
		return amqpconn.ErrClosed
	case <-ctx.Done():
		return NotSent(ctx)
	case <-expired:
		return p.Unsent()
	}
}

// SendInOrder is Send for a message that follows another one of the same caller, or nil. If
// they go over different channels, SendInOrder waits for the result of the previous one. If m
// is unproven, it waits for the result of m, too, so that none overtakes it.
func (p *Publisher) SendInOrder(ctx context.Context, previous, m *Message, expired <-chan time.Time) error {
	m.lane = p.lane(m)
	if previous != nil && previous.lane != m.lane && previous.lane != p.probe {
		p.settle(ctx, previous)
		m.lane = p.lane(m)
	}
	err := p.send(ctx, m, expired)
	if err == nil && m.lane == p.probe {
		p.settle(ctx, m)
	}
	return err
}

// settle waits until m has a result, or is late.
func (p *Publisher) settle(ctx context.Context, m *Message) {
	timer := time.NewTimer(p.lateAfter())
	defer timer.Stop()
	select {
	case <-m.done:
	case <-p.closed:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Await returns the result of a message that was handed over. A result that is known
// counts, however late it is.
func (p *Publisher) Await(ctx context.Context, m *Message, expired <-chan time.Time, late func()) error {
	closed := p.closed
	for {
		select {
		case <-m.done:
			return m.err
		case <-closed:
			if m.state.CompareAndSwap(queued, abandoned) {
				return amqpconn.ErrClosed
			}
			closed = nil // a written message gets a result
		case <-ctx.Done():
			if m.abandon() {
				return NotSent(ctx)
			}
			return m.or(fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(ctx)))
		case <-expired:
			if late == nil {
				if m.abandon() {
					return p.Unsent()
				}
				return m.or(p.unanswered())
			}
			if m.state.CompareAndSwap(queued, abandoned) {
				return p.Unsent()
			}
			late()
			expired = nil
		}
	}
}

// Unsent is the error of a message that was not sent within the timeout.
func (p *Publisher) Unsent() error {
	why := p.cfg.Link.Trouble()
	if why == nil {
		why = ErrStalled
	}
	return fmt.Errorf("%w (not sent within %s)", why, p.cfg.Timeout)
}

// unanswered is the error of a message that was sent and not answered within the timeout.
func (p *Publisher) unanswered() error {
	err := fmt.Errorf("%w within %s", ErrUnconfirmed, p.cfg.Timeout)
	if why := p.cfg.Link.Trouble(); errors.Is(why, amqpconn.ErrBlocked) {
		err = fmt.Errorf("%w: %v", err, why) // not to match: it would say that nothing is stored
	}
	return err
}

// lane returns the lane of a message.
func (p *Publisher) lane(m *Message) *lane {
	if !p.proven.has(m) {
		return p.probe
	}
	if l := p.lateLane(m); l != nil {
		return l
	}
	return p.fast
}

// IsLate reports whether a message goes to a late destination.
func (p *Publisher) IsLate(m *Message) bool { return p.lateLane(m) != nil }

func (p *Publisher) lateLane(m *Message) *lane {
	if !p.anyLate.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late[m.destination()]
}

// markLate gives the destination of a late message a bulkhead.
func (p *Publisher) markLate(m *Message) {
	if p.answers.Load() == m.before {
		p.silent.Store(true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to := m.destination()
	if p.late[to] != nil {
		return
	}
	if len(p.late) >= maxLate {
		for other := range p.late {
			p.endLate(other)
			break
		}
	}
	if l := p.bulkhead(); l != nil {
		p.assign(to, l)
	}
}

// bulkhead returns the best bulkhead for one more destination: one that no other has, or one
// that is not stuck, and then the one that fewest have. It returns nil if the client is closed.
func (p *Publisher) bulkhead() *lane {
	var best *lane
	for _, l := range p.bulkheads {
		if best == nil || !l.stuck && best.stuck || l.stuck == best.stuck && l.destinations < best.destinations {
			best = l
		}
	}
	if best == nil || best.destinations > 0 && len(p.bulkheads) < maxBulkheads {
		best = p.newLane(bulkheadLane, bulkheadInFlight)
		if p.cfg.Tasks.Go(best.run) != nil {
			return nil
		}
		p.bulkheads = append(p.bulkheads, best)
	}
	return best
}

func (p *Publisher) assign(to destination, l *lane) {
	l.destinations++
	p.late[to] = l
	p.anyLate.Store(true)
}

// endLate makes a destination take the fast channel again.
func (p *Publisher) endLate(to destination) {
	if l := p.late[to]; l != nil {
		l.destinations--
		l.stuck = l.stuck && l.destinations > 0
		delete(p.late, to)
		p.anyLate.Store(len(p.late) > 0)
	}
}

// separate gives the other destinations of a bulkhead whose oldest message is late another
// one: they may only have been behind a late message. It does nothing where all bulkheads are
// stuck. It reports whether it has moved any.
func (p *Publisher) separate(l *lane, head *Message) (moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.stuck = true
	for to, of := range p.late {
		if of != l || to == head.destination() {
			continue
		}
		other := p.bulkhead()
		if other == nil || other.stuck {
			return moved
		}
		p.endLate(to)
		p.assign(to, other)
		moved = true
	}
	return moved
}

// answered notes an answer about a message that was written on a lane.
func (p *Publisher) answered(on *lane, m *Message, inTime bool) {
	p.answers.Add(1)
	if p.silent.Load() {
		p.silent.Store(false)
	}
	if !inTime || !p.anyLate.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	on.stuck = false
	p.endLate(m.destination())
}
