package consume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/internal/retry"
)

// Keyed configures a Consumer that handles the messages of a key in order. It consumes the partitions of its queue; see package
// ordered.
type Keyed struct {
	Partitions int
	MaxHeld    int // per partition
	MaxBytes   int
	OnFull     ordered.Full
	Rate       ordered.Rate // of each key
	Owner      KeyedOwner
}

// KeyedOwner handles the deliveries of a Consumer with Keyed. Several goroutines call the methods concurrently.
type KeyedOwner interface {
	// OrderKey returns the key of a message.
	OrderKey(d *Delivery) string

	// Follower returns the content of a copy of a message that has had no attempt.
	Follower(d *Delivery) (*amqpconn.Message, error)

	// Hold publishes a message to a held queue. It returns nil after the confirm, or a *CopyRefusedError.
	Hold(ctx context.Context, queue string, m *amqpconn.Message) error

	// Blocked reports whether the broker blocks publishers.
	Blocked() bool

	// Park moves a message to the failed queue for the given reason, and settles it.
	Park(ctx context.Context, d *Delivery, reason error)
}

// PartitionQueue returns the name of a partition, from 0. The name contains the number of partitions, so that a publisher with
// another number does not find the queue.
func PartitionQueue(queue string, n, partitions int) string {
	return fmt.Sprintf("%s.part.%d-of-%d", queue, n, partitions)
}

// HeldQueue returns the name of the held queue of a partition.
func HeldQueue(partition string) string { return partition + ".held" }

// MembersQueue returns the name of the queue whose consumers are counted. The queue has no messages. RabbitMQ does not count the
// consumers of a held queue that are not active.
func MembersQueue(queue string) string { return queue + ".part.members" }

// Times of the ownership of partitions.
const (
	lease        = 10 * time.Second
	patience     = time.Minute
	rebalance    = time.Minute                                    // a subscription of another process starts it earlier
	keepAllTimes = int64(365 * 24 * time.Hour / time.Millisecond) // x-consumer-timeout; RabbitMQ 4.3
)

var (
	errReleased = errors.New("reprise: the partition is released")
	errHeldFull = errors.New("too many messages wait")
)

// keyedCrashLimit returns the number of attempts that do not end after which a message is parked. Unlike other consumers, a keyed
// consumer counts them itself, because the broker counts each return of a message at a change of the owner.
func (c *Consumer) keyedCrashLimit() int64 {
	switch {
	case c.CrashLimit < 0:
		return math.MaxInt64
	case c.CrashLimit == 0:
		return DefaultCrashLimit
	}
	return int64(c.CrashLimit)
}

// partitions are the partitions of a Consumer.
type partitions struct {
	consumer *Consumer
	all      []*partition
	leave    context.Context // done when the partitions must be released immediately
	cancel   context.CancelFunc
	running  sync.WaitGroup

	declaring  chan struct{} // semaphore with one slot; its holder declares the queues
	generation uint64        // connection on which the queues were declared; declaring guards it

	mu         sync.Mutex
	subscribed int // held queues
	owned      int
	unwanted   time.Time   // the other processes have refused a partition
	consuming  bool        // was reported
	paused     bool        // was reported
	waiting    []*Delivery // wait for a slot
	more       chan struct{}
	stopped    bool

	joined chan struct{} // receives a token when the number of members or of owned partitions may have changed
}

// partition is one partition. Only its goroutine uses the fields, unless stated otherwise.
type partition struct {
	group    *partitions
	name     string
	refusals int                  // subscriptions in a row that were active and refused the ownership
	owner    atomic.Pointer[term] // nil: this process does not own the partition
	owns     bool                 // this process owns the partition; partitions.mu guards it
	release  chan struct{}        // receives a token if this process owns too many partitions
}

// consumeKeyed consumes the partitions until ctx is done, or until the client is closed. The partitions then drain; the caller closes
// them.
func (c *Consumer) consumeKeyed(ctx context.Context) (*partitions, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	closed := make(chan error, 1)
	g := &partitions{consumer: c, declaring: make(chan struct{}, 1), more: make(chan struct{}, 1), joined: make(chan struct{}, 1)}
	g.leave, g.cancel = context.WithCancel(c.settling)
	if err := g.declare(ctx); err != nil {
		return nil, err
	}
	for n := range c.Keyed.Partitions {
		g.all = append(g.all, &partition{group: g, name: PartitionQueue(c.Queue, n, c.Keyed.Partitions), release: make(chan struct{}, 1)})
	}
	c.partitions.Store(g)
	starting := make(chan struct{})
	run := func(f func()) error {
		g.running.Add(1)
		err := c.Tasks.Go(func() { defer g.running.Done(); f() })
		if err != nil {
			g.running.Done()
		}
		return err
	}
	errs := []error{run(func() { defer close(starting); g.start(ctx) }), run(func() { g.balance(ctx) }), run(func() {
		if err := g.attend(ctx); err != nil {
			closed <- err
			end()
		}
	})}
	for _, p := range g.all {
		errs = append(errs, run(func() { p.run(ctx) }))
	}
	if err := errors.Join(errs...); err != nil {
		return g, err
	}
	<-ctx.Done()
	<-starting
	select {
	case err := <-closed:
		return g, err
	default:
		return g, nil
	}
}

// close waits until all partitions are released, for at most timeout, and then releases them immediately.
func (g *partitions) close(timeout time.Duration) {
	stop := time.AfterFunc(timeout, g.cancel)
	defer stop.Stop()
	g.running.Wait()
	g.cancel()
}

// declare declares the queues once for each connection. It repeats temporary failures until ctx is done.
func (g *partitions) declare(ctx context.Context) error {
	select {
	case g.declaring <- struct{}{}:
		defer func() { <-g.declaring }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := g.consumer
	retrier := retry.Retrier{Schedule: c.Reconnect}
	for {
		conn, err := c.Link.Get(ctx)
		if err != nil {
			return err
		}
		if conn.Generation() == g.generation {
			return nil
		}
		permanent, err := c.owner.Declare(ctx)
		if err == nil {
			g.generation = conn.Generation()
			return nil
		}
		if permanent && g.generation == 0 {
			return err
		}
		delay := retrier.Failed(0)
		g.interrupted(err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// forget makes the next declare on a connection declare the queues again.
func (g *partitions) forget(generation uint64) {
	g.declaring <- struct{}{}
	defer func() { <-g.declaring }()
	if g.generation == generation {
		g.generation = math.MaxUint64
	}
}

// subscribe adds n subscriptions to held queues.
func (g *partitions) subscribe(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subscribed += n
	g.report()
}

// report reports that the process consumes, if it is subscribed to all held queues and not paused. The caller must hold mu.
func (g *partitions) report() {
	if !g.consuming && !g.paused && g.subscribed == len(g.all) {
		g.consuming = true
		g.consumer.owner.Consuming()
	}
}

// interrupted reports that a partition has no subscription.
func (g *partitions) interrupted(err error, delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.consuming = false; !g.paused {
		g.consumer.owner.Interrupted(err, delay)
	}
}

// request lets a delivery wait for a slot.
func (g *partitions) request(d *Delivery) {
	g.mu.Lock()
	stopped := g.stopped
	if !stopped {
		g.waiting = append(g.waiting, d)
	}
	g.mu.Unlock()
	if stopped {
		d.drop()
		return
	}
	select {
	case g.more <- struct{}{}:
	default:
	}
}

// startable returns the first delivery that may start, and its index.
func (g *partitions) startable() (int, *Delivery) {
	g.mu.Lock()
	waiting := g.waiting // only start removes elements
	g.mu.Unlock()
	if i := g.consumer.startable(waiting); i >= 0 {
		return i, waiting[i]
	}
	return -1, nil
}

// start starts attempts when the admission permits them.
func (g *partitions) start(ctx context.Context) {
	c := g.consumer
	next := c.admission(ctx, c.pauser.probing())
	defer func() {
		next.end()
		g.mu.Lock()
		g.stopped = true
		waiting := g.waiting
		g.waiting = nil
		g.mu.Unlock()
		for _, d := range waiting {
			d.drop()
		}
	}()
	for ctx.Err() == nil {
		if left, _ := c.pauser.remaining(); left > 0 {
			next.releaseSlots()
			if g.waitPaused(ctx) != nil {
				return
			}
		}
		i, d := g.startable()
		if alone := c.pauser.probing() || d != nil && d.alone; alone != next.alone {
			next.end()
			next = c.admission(ctx, alone)
		}
		var slots <-chan *slot
		if d != nil {
			slots = next.slots()
		}
		if d != nil && next.ready() {
			if next.begin(d) {
				g.mu.Lock()
				g.waiting = slices.Delete(g.waiting, i, i+1)
				g.mu.Unlock()
				next.end()
				next = c.admission(ctx, c.pauser.probing())
			}
			continue
		}
		select {
		case <-g.more:
		case <-c.vacated:
		case slot := <-slots:
			next.take(slot)
		case permitted := <-next.permit:
			next.answered(permitted)
		case <-c.pauser.paused():
		case <-ctx.Done():
		}
	}
}

// waitPaused reports a pause, and waits for its end.
func (g *partitions) waitPaused(ctx context.Context) error {
	c := g.consumer
	left, reason := c.pauser.remaining()
	if left == unlimited {
		left = 0
	}
	c.Log.Warn("paused", "for", left.Round(time.Millisecond), "reason", reason)
	g.mu.Lock()
	g.paused, g.consuming = true, false
	c.owner.Paused(left, reason)
	g.mu.Unlock()
	for {
		changed := c.pauser.holdChanged() // before remaining, so that a later hold is not missed
		left, _ := c.pauser.remaining()
		if left <= 0 {
			break
		}
		look := time.NewTimer(left)
		select {
		case <-look.C:
		case <-changed:
		case <-ctx.Done():
		}
		look.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	c.Log.Info("resumed")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = false
	c.owner.Resumed()
	g.report()
	return nil
}

// run subscribes to the held queue again and again until ctx is done.
func (p *partition) run(ctx context.Context) {
	c := p.group.consumer
	retrier := retry.Retrier{Schedule: c.Reconnect}
	for ctx.Err() == nil {
		began := time.Now()
		err := p.subscribe(ctx)
		if ctx.Err() != nil || errors.Is(err, errReleased) {
			continue
		}
		if errors.Is(err, amqpconn.ErrClosed) {
			return
		}
		delay := retrier.Failed(time.Since(began))
		c.Log.Warn("consuming interrupted", "partition", p.name, "error", err, retry.Next(delay))
		p.group.interrupted(err, delay)
		_ = retry.Sleep(ctx, delay)
	}
}

// subscribe opens the channel of the held queue, and serves the subscription until it ends.
func (p *partition) subscribe(ctx context.Context) error {
	c := p.group.consumer
	if err := p.group.declare(ctx); err != nil {
		return err
	}
	conn, err := c.Link.Get(ctx)
	if err != nil {
		return err
	}
	t, err := newTerm(ctx, p, conn)
	if err == nil {
		p.group.subscribe(1)
		err = t.serve(ctx)
		p.group.subscribe(-1)
		t.finish()
	}
	if !errors.Is(err, errReleased) {
		p.group.forget(conn.Generation())
	}
	return err
}
