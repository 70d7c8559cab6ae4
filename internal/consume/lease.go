package consume

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// A lease lets an attempt continue beyond the acknowledgement timeout, and beyond the connection that delivered its message.
// The owner publishes a copy of the message into the lease queue of the process. The leases consumer receives the copy and
// keeps it unacknowledged; then the original is acknowledged. A renewal replaces the copy by a newer copy in the same way, so
// the attempt always holds a message:
//
//	work queue      original ──────────────────► ack
//	lease queue            copy 1 ─ held ──────────────► ack
//	lease queue                         copy 2 ─ held ─────── …
//
// If the process or its connection fails, the broker returns the held copy to the lease queue. There it expires Config.Lease
// after it was published, and the broker dead-letters it into the work queue. A process that reconnects earlier receives its
// copies again, and its attempts continue. Because Config.Lease is measured from before the publish, an attempt knows that it
// has lost its message before another process can receive the message.

// ErrLeaseLost is the cause of the cancellation of a handler's context if the attempt has lost its message.
var ErrLeaseLost = errors.New("reprise: lease lost: the connection failed for longer than the Lease, so another worker may process the message")

// errNoMessage means that a renewal must wait, because the attempt does not hold a message.
var errNoMessage = errors.New("reprise: cannot renew the lease while the attempt does not hold its message")

// HeaderLease identifies a copy: the ID of the attempt, a slash and the number of the copy.
const HeaderLease = "x-reprise-lease"

// HeaderCrashes is the number of deliveries of a parked or leased message that were never settled.
const HeaderCrashes = "x-reprise-crashes"

// heldCopy is a copy that the attempt holds. The zero value means that it holds none.
type heldCopy struct {
	acks *ack.Acker
	tag  uint64
	ctx  context.Context // of the channel
}

// attemptLease is the lease of one attempt.
type attemptLease struct {
	all   *leases
	d     *Delivery
	id    string
	ctx   context.Context // canceled when the attempt no longer holds the message
	end   context.CancelCauseFunc
	turn  chan struct{} // semaphore with one slot; its holder publishes a copy
	timer *time.Timer   // starts the next renewal

	mu       sync.Mutex
	ended    bool // the message is settled or lost, or the attempt has ended without a copy
	lost     bool
	leased   bool // a copy has replaced the original
	sent     int  // number of the newest copy
	sentAt   time.Time
	number   int       // number of the newest copy that was held
	until    time.Time // until then, no other process can receive that copy
	held     heldCopy
	changed  chan struct{} // closed and replaced when a copy is held
	acked    chan struct{} // closed when the original was acknowledged
	expiring *time.Timer   // ends the lease while no copy is held
	data     []byte        // saved by the handler
}

// startLease prepares the lease of an attempt whose handler starts. A copy is published only after Config.Lease.
func (d *Delivery) startLease() {
	x := d.session.consumer.leases
	if x == nil {
		return
	}
	l := &attemptLease{all: x, d: d, turn: make(chan struct{}, 1), changed: make(chan struct{}), acked: make(chan struct{})}
	l.ctx, l.end = context.WithCancelCause(x.consumer.settling)
	x.add(l)
	l.mu.Lock()
	l.timer = time.AfterFunc(x.consumer.Lease, func() { _ = x.consumer.Tasks.Go(l.tick) }) // fails only if the client is closed
	l.mu.Unlock()
	d.lease = l
}

// tick renews the lease, and schedules the next renewal.
func (l *attemptLease) tick() {
	length := l.all.consumer.Lease
	ctx, cancel := context.WithTimeout(l.ctx, length)
	defer cancel()
	if err := l.renew(ctx); err != nil && l.ctx.Err() == nil {
		l.all.consumer.Log.Warn("lease not renewed", "message_id", l.d.MessageID, "attempt", l.d.Attempt, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.timer.Reset(length / 3)
	}
}

// renew replaces the held message by a new copy. After an error, the attempt may still hold the earlier message, and the
// lease may still receive the copy.
func (l *attemptLease) renew(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.all.ready(ctx); err != nil {
		return err
	}
	if l.isLeased() { // a process that has just reconnected has not received its copy yet
		if err := l.await(ctx, 0); err != nil {
			return err
		}
	}
	n, err := l.next()
	if err != nil {
		return err
	}
	if err := l.all.consumer.owner.Lease(ctx, l.d, l.id+"/"+strconv.Itoa(n)); err != nil {
		return err
	}
	if err := l.await(ctx, n); err != nil {
		return err
	}
	select {
	case <-l.acked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next returns the number of the next copy.
func (l *attemptLease) next() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return 0, ErrLost
	case l.leased && l.held.acks == nil, !l.leased && l.d.session.ctx.Err() != nil:
		return 0, errNoMessage // a copy could be a second message
	}
	l.sent++
	l.sentAt = time.Now()
	return l.sent, nil
}

// await waits until the attempt holds copy n or a newer copy.
func (l *attemptLease) await(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		holds, changed := l.held.acks != nil && l.number >= n, l.changed
		l.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive holds copy n, and acknowledges the message that it replaces. It returns the verb for a copy that the attempt does
// not need.
func (l *attemptLease) receive(n int, in heldCopy) (v ack.Verb, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return l.verb(), true
	case l.held.acks != nil && n < l.number:
		return ack.Ack, true
	case !l.leased && l.d.session.ctx.Err() != nil:
		return ack.Ack, true // the broker has redelivered the original
	case !l.leased:
		_ = l.all.consumer.Tasks.Go(l.ackOriginal) // fails only if the client is closed
	case l.held.acks != nil:
		l.held.acks.Settle(l.held.tag, ack.Ack)
	}
	if n == l.sent {
		l.until = l.sentAt.Add(l.all.consumer.Lease)
	}
	l.leased, l.number, l.held = true, n, in
	if l.expiring != nil {
		l.expiring.Stop()
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return 0, false
}

// ackOriginal acknowledges the original. Until the broker has processed the ack, a lost connection duplicates the message.
func (l *attemptLease) ackOriginal() {
	if !l.d.session.acks.AckNow(l.d.Tag) {
		l.all.consumer.Log.Warn("message may be duplicated", "message_id", l.d.MessageID, "attempt", l.d.Attempt, "reason", "the connection was lost at the start of its lease")
	}
	close(l.acked)
}

// verb returns the verb for a copy that arrives after the end of the attempt. The message of a lost lease must not be lost.
func (l *attemptLease) verb() ack.Verb {
	if l.lost {
		return ack.DeadLetter
	}
	return ack.Ack
}

// interrupted records that the channel of a held copy has closed.
func (l *attemptLease) interrupted(acks *ack.Acker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.held.acks != acks {
		return
	}
	l.held = heldCopy{}
	l.expiring = time.AfterFunc(time.Until(l.until), l.expire)
}

// expire ends a lease that holds no copy.
func (l *attemptLease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.held.acks != nil {
		return
	}
	l.all.consumer.Log.Warn("lease lost", "message_id", l.d.MessageID, "attempt", l.d.Attempt)
	l.lost = true
	l.finish(ErrLeaseLost)
}

// finish ends the lease. The caller holds mu.
func (l *attemptLease) finish(reason error) {
	l.ended = true
	l.timer.Stop()
	if l.expiring != nil {
		l.expiring.Stop()
	}
	l.end(reason)
	l.all.remove(l)
}

// detach is called when the handler has returned. An attempt without a copy settles its original.
func (l *attemptLease) detach() {
	l.mu.Lock()
	if !l.leased && !l.ended {
		l.finish(nil)
	}
	ended := l.ended
	l.mu.Unlock()
	if ended {
		l.turn <- struct{}{} // a renewal no longer reads the delivery
	}
}

// isLeased reports whether a copy has replaced the original.
func (l *attemptLease) isLeased() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leased
}

// settle settles the held copy. If the attempt does not hold a copy, settle waits until it does, or until the lease is lost.
func (l *attemptLease) settle(v ack.Verb) error {
	for {
		l.mu.Lock()
		if l.ended {
			l.mu.Unlock()
			return ErrLost
		}
		if l.held.acks != nil && l.held.ctx.Err() == nil {
			break
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.ctx.Done():
			return ErrLost
		}
	}
	l.held.acks.Settle(l.held.tag, v)
	l.all.note(v != ack.Ack)
	l.finish(nil)
	l.mu.Unlock()
	return nil
}

// release returns the message of an attempt that has not settled it.
func (l *attemptLease) release() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if l.held.acks != nil {
		l.held.acks.Settle(l.held.tag, ack.DeadLetter)
	}
	l.lost = true
	l.finish(ErrLost)
}

// Save moves the message of the running attempt into the lease queue, or renews its lease, with data in each further copy.
func (d *Delivery) Save(ctx context.Context, data []byte) error {
	d.lease.mu.Lock()
	d.lease.data = data
	d.lease.mu.Unlock()
	return d.lease.renew(ctx)
}

// Saved returns the data that the attempt has passed to Save, or nil.
func (d *Delivery) Saved() []byte {
	if d.lease == nil {
		return nil
	}
	d.lease.mu.Lock()
	defer d.lease.mu.Unlock()
	return d.lease.data
}

// HasLease reports whether the attempt can be leased.
func (d *Delivery) HasLease() bool { return d.lease != nil }

// HandlerContext returns a context that is also canceled when the attempt loses its message. The function releases it.
func (d *Delivery) HandlerContext(ctx context.Context) (context.Context, func()) {
	if d.lease == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.lease.ctx, func() { cancel(context.Cause(d.lease.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Leased reports whether a copy has replaced the delivery.
func (d *Delivery) Leased() bool { return d.lease.isLeased() }

// leaseCrashes returns the number of attempts that ended with their process or connection while they had a lease. Such a
// message returns from the lease queue.
func leaseCrashes(headers map[string]any) int {
	token, _ := headers[HeaderLease].(string)
	if !strings.Contains(token, "/") {
		return 0
	}
	return amqpvalue.Count(headers[HeaderCrashes]) + 1
}

// countLeases adds the interrupted leases to the crashes of the message.
func (d *Delivery) countLeases() {
	n := leaseCrashes(d.Headers)
	if n == 0 {
		return
	}
	d.Crashes = n - 1 + max(1, d.Crashes)                        // since RabbitMQ 4.3, the count of the work queue includes the count of the lease queue
	if d.CrashLimit == 0 && d.session.consumer.CrashLimit == 0 { // the broker counts requeues, but the leases do not
		d.CrashLimit, d.Crashes = DefaultCrashLimit, n
	}
}
