package consume

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/loglimit"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Config configures a Consumer.
type Config struct {
	Queue string
	Tag   string // prefix of consumer tags
	Marks topology.Marks

	Concurrency  int
	Prefetch     int
	Certain      bool // whether the owner must know that the broker has processed acknowledgements; see ack.CertainWindow
	Priority     int32
	Window       time.Duration // time for which equal messages are collected, to be handled as one; 0: none
	Bulkheads    bool          // the owner limits the attempts of some deliveries: see Owner.Bulkhead
	CrashLimit   int           // 0: the default; negative: none
	Persistent   bool          // Run tries again if the queue is a stream
	Timeout      time.Duration // acknowledgement timeout of the broker; negative: none
	DrainTimeout time.Duration
	Lease        time.Duration // 0: none
	LeaseQueue   topology.Queue

	Keyed *Keyed   // nil: no order by key
	Lanes []string // queues that are consumed instead of Queue; nil: none

	Limiter Limiter // may be nil
	Breaker Breaker // may be nil

	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Reconnect backoff.Backoff
	Log       *slog.Logger
}

// Owner handles the deliveries of a Consumer. Several goroutines call the methods
// concurrently.
type Owner interface {
	// New returns an empty delivery, which may be part of a larger value.
	New() *Delivery

	// Declare declares the objects that consumption of the queue requires. If the error is permanent, Run returns it,
	// unless the Consumer has already opened a session.
	Declare(ctx context.Context) (permanent bool, err error)

	// Key returns the same string for equal messages, or "" for a message that does not wait for others. After an error,
	// the delivery is handled with this error in Err.
	Key(d *Delivery) (string, error)

	// Bulkhead returns the bulkhead of a delivery, or nil. It is called at most once for a delivery, before its attempt, and
	// only if Config.Bulkheads is set.
	Bulkhead(d *Delivery) *Bulkhead

	// Handle handles a delivery and settles it. It must call End.
	Handle(ctx context.Context, d *Delivery)

	DeclareLeaseQueue(ctx context.Context, q topology.Queue) error

	// Lease publishes a copy of the delivery with the given HeaderLease to Config.LeaseQueue, and waits for the confirm. After an
	// error, again reports whether another copy may be stored.
	Lease(ctx context.Context, d *Delivery, id string) (again bool, err error)

	Consuming()                                  // a consumer exists
	Interrupted(err error, delay time.Duration)  // consumption resumes after the delay
	Paused(d time.Duration, reason error)        // consumption stops intentionally; 0: until Hold(nil)
	Resumed()                                    // consumption resumes after the pause
	Repeated(n int)                              // number of redeliveries that wait because their messages are still being handled
	TimeoutNear(d *Delivery, held time.Duration) // a handler has held the delivery for most of the acknowledgement timeout
}

// ErrDrainTimeout is returned by Run if attempts were still running at the end of the drain.
var ErrDrainTimeout = errors.New("reprise: handlers were still running at the end of the drain")

// Consumer consumes one queue.
type Consumer struct {
	Config
	owner    Owner
	deadline deadline
	lanes    lanes
	slots    *slots
	pauser   *pauser
	leases   *leases            // nil: none
	busy     chan chan struct{} // receives a channel that is closed when the session consumes no messages
	vacated  chan struct{}      // receives a token after an attempt has left its bulkhead

	partitions atomic.Pointer[partitions] // nil without Keyed, or before Run

	loggedBreaker loglimit.Limit

	attempts sync.WaitGroup // includes the settlement after each attempt
	next     chan *Delivery // to an idle goroutine
	idle     atomic.Int32   // number of idle goroutines

	handling context.Context // context of handlers
	draining context.Context // done when the consumer no longer starts attempts
	settling context.Context // context of sessions, and of settling without a session
}

// New returns a Consumer. The caller starts it with Run.
func New(config Config, owner Owner) *Consumer {
	c := &Consumer{
		Config: config, owner: owner, deadline: newDeadline(config.Timeout), lanes: newLanes(config.Lanes),
		slots: newSlots(config.Concurrency), pauser: newPauser(config.Limiter, config.Breaker), vacated: make(chan struct{}, 1), next: make(chan *Delivery),
	}
	if config.Lease > 0 {
		c.leases, c.busy = newLeases(c), make(chan chan struct{})
	}
	return c
}

// Hold stops consumption until the next call with nil. Attempts in progress continue.
func (c *Consumer) Hold(reason error) { c.pauser.hold(reason) }

// Running yields the deliveries that handlers are processing.
func (c *Consumer) Running() iter.Seq[*Delivery] { return c.slots.running() }

// Draining returns a context that is done when the consumer no longer starts attempts.
func (c *Consumer) Draining() context.Context { return c.draining }

// Settling returns the context for settling. It is canceled at the end of a drain.
func (c *Consumer) Settling() context.Context { return c.settling }

// Run consumes until ctx is done or the client is closed. Run also stops if Declare returns a permanent error before
// the first session. Run then drains. It waits for running attempts until the DrainTimeout expires or force is closed.
// If attempts are still running, it cancels the context of the handlers and waits for at most LastGrace. Then it closes
// the session, and waits again for at most LastGrace if necessary. If an attempt is still running after that, Run
// returns ErrDrainTimeout. Run must not be called twice.
func (c *Consumer) Run(ctx context.Context, force <-chan struct{}) error {
	values := context.WithoutCancel(ctx)
	settling, endSettling := context.WithCancelCause(values)
	handling, endHandling := context.WithCancelCause(settling)
	defer endSettling(amqpconn.ErrClosed)
	defer endHandling(amqpconn.ErrClosed)
	draining, drain := context.WithCancel(values)
	defer drain()
	c.settling, c.handling, c.draining = settling, handling, draining

	var last interface{ close(timeout time.Duration) }
	var err error
	if c.Keyed != nil {
		g, failed := c.consumeKeyed(ctx)
		if g != nil {
			last = g
		}
		if ctx.Err() == nil { // otherwise, the client has closed during the drain
			err = failed
		}
	} else if s, failed := c.consume(ctx); s != nil {
		last, err = s, failed
	} else {
		err = failed
	}
	drain()

	idle := make(chan struct{})
	go func() { // returns after the last attempt
		c.attempts.Wait()
		close(idle)
	}()
	drained := wait(idle, c.DrainTimeout, force)
	if !drained {
		c.Log.Warn("drain timeout", "running", c.slots.taken())
		endHandling(ErrDrainTimeout)
		drained = wait(idle, LastGrace, nil)
	}
	c.leases.close(LastGrace)
	if last != nil {
		last.close(LastGrace)
	}
	endSettling(amqpconn.ErrClosed)
	if !drained && !wait(idle, LastGrace, nil) { // from now on, attempts do not publish copies
		err = errors.Join(err, ErrDrainTimeout)
	}
	return err
}

// LastGrace is the time for attempts to finish after their context is canceled, and also the time for settling their
// messages.
const LastGrace = 5 * time.Second

// wait waits until the channel done or the channel cut is closed, for at most d. It reports whether done was closed.
func wait(done <-chan struct{}, d time.Duration, cut <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-cut:
	}
	return false
}

// consume keeps a session open until ctx is done. If the last session is still open, consume returns it for the drain.
func (c *Consumer) consume(ctx context.Context) (*session, error) {
	retrier := retry.Retrier{Schedule: c.Reconnect}
	first, careful, stream := true, false, false
	for ctx.Err() == nil {
		began := time.Now()
		s, permanent, err := c.open(ctx, careful)
		if err == nil {
			first = false
			if stream { // a subscription would skip messages until the next message shows again that the queue is a stream
				err = s.checkQueue()
			}
			if err == nil {
				if err = s.serve(ctx); err == nil {
					return s, nil
				}
			}
			s.abandon(err)
			stream = stream || errors.Is(err, ErrStream)
			careful = s.conn.Unreadable()
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, amqpconn.ErrClosed), permanent && first, errors.Is(err, ErrStream) && !c.Persistent:
			return nil, err
		}
		delay := retrier.Failed(time.Since(began))
		c.owner.Interrupted(err, delay) // first, so that who reads the log finds the status
		c.Log.Warn("consuming interrupted", "error", err, retry.Next(delay))
		if retry.Sleep(ctx, delay) != nil {
			return nil, nil
		}
	}
	return nil, nil
}

// errLease refuses leases that would move messages to the failed queue without an attempt: while all handlers have leases, the
// consumer returns the other messages that it has received.
var errLease = errors.New("reprise: Lease with a Prefetch or Concurrency above 1 requires RabbitMQ 4.3 or later, because earlier versions count each returned message as a failed delivery (use Concurrency 1, and several workers)")

// open declares the required objects and opens a session.
func (c *Consumer) open(ctx context.Context, careful bool) (s *session, permanent bool, err error) {
	if permanent, err = c.owner.Declare(ctx); err != nil {
		return nil, permanent, err
	}
	conn, err := c.Link.Get(ctx)
	if err != nil {
		return nil, false, err
	}
	if c.Lease > 0 && c.Prefetch > 1 && CountsNacks(conn.Version()) {
		return nil, true, errLease
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return nil, false, err
	}
	s, err = c.session(conn, ch, careful)
	return s, false, err
}
