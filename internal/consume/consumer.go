package consume

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Config configures a Consumer.
type Config struct {
	Queue string
	Tag   string // consumer tags begin with it
	Marks topology.Marks

	Concurrency  int
	Prefetch     int
	Certain      bool // acknowledgements have to be known to be taken: see ack.CertainWindow
	Priority     int32
	Window       time.Duration // within which equal messages are one; 0: each is handled
	CrashLimit   int           // 0: the default; negative: none
	Timeout      time.Duration // acknowledgement timeout of the broker; negative: none
	DrainTimeout time.Duration

	Limiter Limiter // or nil
	Breaker Breaker // or nil

	Link      *amqpconn.Link
	Tasks     *amqpconn.Tasks
	Reconnect backoff.Backoff
	Log       *slog.Logger
}

// Owner handles what a Consumer delivers. The methods are called from several
// goroutines.
type Owner interface {
	// New returns an empty delivery, which may be part of something larger.
	New() *Delivery

	// Declare declares what has to exist before the queue is consumed. A permanent
	// error ends Run if nothing was consumed yet.
	Declare(ctx context.Context) (permanent bool, err error)

	// Key returns the same text for equal messages, or "" for one that waits for no
	// others. After an error the delivery is handled, with the error as its Err.
	Key(d *Delivery) (string, error)

	// Handle handles a delivery and settles it. It has to call End.
	Handle(ctx context.Context, d *Delivery)

	Consuming()                                  // there is a consumer
	Interrupted(err error, delay time.Duration)  // there is none, until after the delay
	Paused(d time.Duration, reason error)        // there is none, on purpose; 0: until Hold
	Resumed()                                    // the pause is over
	TimeoutNear(d *Delivery, held time.Duration) // a handler has had it for long
}

// ErrDrainTimeout is returned by Run if attempts were still running at the end.
var ErrDrainTimeout = errors.New("reprise: handlers were still running at the end of the drain")

// Consumer consumes one queue.
type Consumer struct {
	Config
	owner    Owner
	deadline deadline
	slots    *slots
	gate     *gate
	attempts sync.WaitGroup // with the settling after them

	handling context.Context // of handlers
	settling context.Context // of sessions, and of what is settled without one
}

// New returns a Consumer for Run to start.
func New(config Config, owner Owner) *Consumer {
	return &Consumer{
		Config: config, owner: owner, deadline: newDeadline(config.Timeout),
		slots: newSlots(config.Concurrency), gate: newGate(config.Limiter, config.Breaker),
	}
}

// Hold keeps the Consumer from consuming until it is called with nil. What has begun goes on.
func (c *Consumer) Hold(reason error) { c.gate.hold(reason) }

// Running yields the deliveries that are being handled.
func (c *Consumer) Running() iter.Seq[*Delivery] { return c.slots.running() }

// Settling returns the context of settling, which ends when a drain gives up.
func (c *Consumer) Settling() context.Context { return c.settling }

// Run consumes until ctx ends, or an error means that going on is pointless. Then it
// drains: running attempts have DrainTimeout, or until force is closed; then their
// context ends, and they have LastGrace more. It returns ErrDrainTimeout if one was
// still running after that. It is called once.
func (c *Consumer) Run(ctx context.Context, force <-chan struct{}) error {
	values := context.WithoutCancel(ctx)
	settling, endSettling := context.WithCancelCause(values)
	handling, endHandling := context.WithCancelCause(settling)
	defer endSettling(amqpconn.ErrClosed)
	defer endHandling(amqpconn.ErrClosed)
	c.settling, c.handling = settling, handling

	last, err := c.consume(ctx)

	idle := make(chan struct{})
	go func() { // ends with the last attempt
		c.attempts.Wait()
		close(idle)
	}()
	drained := wait(idle, c.DrainTimeout, force)
	if !drained {
		c.Log.Warn("drain timeout", "running", c.slots.taken())
		endHandling(ErrDrainTimeout)
		drained = wait(idle, LastGrace, nil)
	}
	if last != nil {
		last.close(LastGrace)
	}
	endSettling(amqpconn.ErrClosed)
	if !drained && !wait(idle, LastGrace, nil) { // copies under way give up
		err = errors.Join(err, ErrDrainTimeout)
	}
	return err
}

// LastGrace is the time that attempts have after their context has ended, and the time
// to settle their messages.
const LastGrace = 5 * time.Second

// wait waits for done, at most d and until cut is closed. It reports whether it is done.
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

// consume keeps a session open until ctx ends, and returns the last one, still open, for
// the drain.
func (c *Consumer) consume(ctx context.Context) (*session, error) {
	retrier := retry.Retrier{Schedule: c.Reconnect}
	first, careful := true, false
	for ctx.Err() == nil {
		began := time.Now()
		s, permanent, err := c.open(ctx, careful)
		if err == nil {
			first = false
			if err = s.serve(ctx); err == nil {
				return s, nil
			}
			s.abandon(err)
			careful = s.conn.Unreadable()
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, amqpconn.ErrClosed), permanent && first:
			return nil, err
		}
		delay := retrier.Failed(time.Since(began))
		c.Log.Warn("consuming interrupted", "error", err, retry.Next(delay))
		c.owner.Interrupted(err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return nil, nil
		}
	}
	return nil, nil
}

// open declares what is needed and opens a session.
func (c *Consumer) open(ctx context.Context, careful bool) (s *session, permanent bool, err error) {
	if permanent, err = c.owner.Declare(ctx); err != nil {
		return nil, permanent, err
	}
	conn, err := c.Link.Get(ctx)
	if err != nil {
		return nil, false, err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return nil, false, err
	}
	s, err = c.session(conn, ch, careful)
	return s, false, err
}
