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
	// maxInFlight limits the messages in flight on the fast channel. A window of 32 halves the
	// throughput. A window of 1,024 does not reduce it.
	maxInFlight = 1024

	// bulkheadInFlight limits the messages in flight on a bulkhead. If 32 messages are unconfirmed for a queue without
	// a majority, RabbitMQ stops reading from the connection after a few hundred more (measured with 3.10 and 4.3;
	// rabbit_fifo_client).
	bulkheadInFlight = 16

	// maxQueued is the maximum number of messages that a lane queues without making their callers wait for the write.
	// These callers wake up only once.
	maxQueued = 64

	// maxBulkheads limits the bulkheads for late destinations. Further late destinations share bulkheads; see
	// Publisher.separate. A bulkhead can have two channels for a long time. The first channel retires when its oldest
	// copy reaches the age maxAwaitedWait. The oldest copy of the second channel reaches that age only after the newest
	// copy of the first channel. Therefore the bulkheads use at most 64 of the 128 extra channels of a connection. The
	// other half is for the probe lane and for retired channels of the fast lane. Without an extra channel, retirement
	// blocks all publishing (see lane.keep).
	maxBulkheads = 32

	// maxLate limits the remembered late destinations, because the number of routing keys is unlimited.
	// A forgotten destination uses the fast channel once more, and becomes late again.
	maxLate = 1000
)

// Config configures a Publisher.
type Config struct {
	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Timeout   time.Duration // maximum time for sending a message and receiving its confirm
	Reconnect backoff.Backoff
}

// Publisher publishes messages on a link.
//
//	Send ─► lane ─► writer: tag, write ─────────────► broker
//	                                                     │
//	Await ◄── done ◄── listener: Answered, Result ◄──────┘
//
// Each lane has one goroutine that writes. No lock is held across a write, which the broker's flow control may block. A
// caller can therefore stop waiting when its context is done. Messages of a lane are written in the order of Send.
type Publisher struct {
	cfg    Config
	ctx    context.Context // canceled shortly before the link closes
	closed chan struct{}   // closed when the fast lane stops

	fast      *lane
	probe     *lane // for unproven messages, one at a time
	bulkheads []*lane

	answers atomic.Uint64 // number of answers
	silent  atomic.Bool   // a message became late without any answer in the meantime, and no answer has arrived since
	anyLate atomic.Bool
	proven  proven
	timers  sync.Pool // of *time.Timer; a new timer needs three allocations

	mu   sync.Mutex
	late map[destination]*lane
}

// New starts a publisher, which stops when ctx is done.
func New(ctx context.Context, cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, ctx: ctx, closed: make(chan struct{}), late: map[destination]*lane{}}
	p.proven.forget(cfg.Link.User())
	p.fast = p.newLane(fastLane, maxInFlight)
	p.probe = p.newLane(probeLane, 1)
	_ = cfg.Tasks.Go(func() { // cannot fail, because the client is not closed yet
		defer close(p.closed)
		p.fast.run()
	})
	_ = cfg.Tasks.Go(p.probe.run)
	return p
}

// lateAfter returns the time after which an answer is late. A third of the timeout leaves enough time for the message
// that follows a late message. The limit is 10 s, because RabbitMQ refuses messages for a queue without a majority only
// after 65 s. Such messages must count as late before then.
func (p *Publisher) lateAfter() time.Duration { return min(p.cfg.Timeout/3, 10*time.Second) }

// Silent reports whether a message is late and no answer to any message has arrived since it was written.
func (p *Publisher) Silent() bool { return p.silent.Load() }

// Publish returns nil if the broker has confirmed the message and has not returned it. If the message was sent but not
// answered within the timeout, and late is not nil, Publish calls late and continues to wait, because a second copy
// would only delay a slow broker further. It then returns when the answer arrives, the channel closes or ctx is done.
func (p *Publisher) Publish(ctx context.Context, m *Message, late func()) error {
	timer := p.Timer()
	defer p.Release(timer)
	if err := p.Send(ctx, m, timer.C); err != nil {
		return err
	}
	return p.Await(ctx, m, timer.C, late)
}

// Timer returns a timer that expires after the Timeout. The caller passes it to Release after use.
func (p *Publisher) Timer() *time.Timer {
	t, ok := p.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(p.cfg.Timeout)
	}
	t.Reset(p.cfg.Timeout)
	return t
}

// Release stops a timer and keeps it for reuse.
func (p *Publisher) Release(t *time.Timer) {
	t.Stop()
	p.timers.Put(t)
}

// Send queues a message for writing. After an error, the message is not written.
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

// SendInOrder is like Send, but keeps the order of previous and m, two messages of the same caller. previous may be
// nil. If the messages use different lanes, SendInOrder first waits until previous has a result or is late. If m is
// unproven, SendInOrder also waits until m has a result or is late, so that later messages do not overtake m.
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

// settle waits until m has a result or is late.
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

// Await waits for the result of a sent message and returns it. A known result takes precedence over an expired timer or
// context.
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
			closed = nil // a written message always gets a result
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

// Unsent returns the error for a message that was not sent within the timeout.
func (p *Publisher) Unsent() error {
	why := p.cfg.Link.Trouble()
	if why == nil {
		why = ErrStalled
	}
	return fmt.Errorf("%w (not sent within %s)", why, p.cfg.Timeout)
}

// unanswered returns the error for a message that was sent but not answered within the timeout.
func (p *Publisher) unanswered() error {
	err := fmt.Errorf("%w within %s", ErrUnconfirmed, p.cfg.Timeout)
	if why := p.cfg.Link.Trouble(); errors.Is(why, amqpconn.ErrBlocked) {
		err = fmt.Errorf("%w: %v", err, why) // %v hides the cause, which would mean that the message was not stored
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

// IsLate reports whether the destination of a message is late.
func (p *Publisher) IsLate(m *Message) bool { return p.lateLane(m) != nil }

func (p *Publisher) lateLane(m *Message) *lane {
	if !p.anyLate.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late[m.destination()]
}

// markLate assigns a bulkhead to the destination of a late message.
func (p *Publisher) markLate(m *Message) {
	if p.answers.Load() == m.answersBefore {
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

// bulkhead returns the best bulkhead for one more destination. It prefers an unused bulkhead, then a
// bulkhead that is not stuck, and then the bulkhead with the fewest destinations. It returns nil if
// the client is closed.
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

// endLate returns a destination to the fast channel.
func (p *Publisher) endLate(to destination) {
	if l := p.late[to]; l != nil {
		l.destinations--
		l.stuck = l.stuck && l.destinations > 0
		delete(p.late, to)
		p.anyLate.Store(len(p.late) > 0)
	}
}

// separate handles a bulkhead whose oldest message is late. It assigns the other destinations to another bulkhead,
// because the late message may be the only reason for their delay. If all bulkheads are stuck, it does not move any. It
// reports whether it has moved a destination.
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

// answered records an answer for a message that was written on a lane.
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
