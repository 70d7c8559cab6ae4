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
	"github.com/reprisemq/reprise/internal/retry"
)

// A lease lets an attempt continue beyond the acknowledgement timeout, and beyond the connection that delivered its message.
// The owner publishes a copy of the message into the lease queue of the process, whose consumer keeps the copy unacknowledged. When
// the copy is held and confirmed, the original is acknowledged. A renewal replaces the copy by a newer copy in the same way, so
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

// errExpired means that a copy has moved to the work queue, which duplicates the message.
var errExpired = errors.New("reprise: the broker has not delivered the copy in the lease queue before it expired")

// HeaderLease identifies a copy: the ID of the attempt, a slash and the number of the copy.
const HeaderLease = "x-reprise-lease"

// HeaderCrashes is the number of deliveries of a parked or leased message that were never settled.
const HeaderCrashes = "x-reprise-crashes"

// heldCopy is a copy that the attempt holds.
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

	acked chan struct{} // closed when the original was acknowledged

	mu        sync.Mutex
	ended     bool // the message is settled or lost, or the attempt has ended without a copy
	lost      bool
	leased    bool // a copy has replaced the original
	sent      int  // number of the newest copy
	sentAt    time.Time
	confirmed int              // number of the newest confirmed copy
	copies    map[int]heldCopy // unacknowledged copies, by number; after a lost confirm, more than one
	until     time.Time        // until then, no other process can receive the newest confirmed copy
	changed   chan struct{}    // closed and replaced when a copy arrives
	expiring  *time.Timer      // ends the lease while no copy is held
	data      []byte           // saved by the handler
}

// startLease prepares the lease of an attempt whose handler starts. A copy is published only after Config.Lease.
func (d *Delivery) startLease() {
	x := d.session.consumer.leases
	if x == nil {
		return
	}
	l := &attemptLease{all: x, d: d, turn: make(chan struct{}, 1), changed: make(chan struct{}), acked: make(chan struct{}), copies: map[int]heldCopy{}}
	l.ctx, l.end = context.WithCancelCause(x.consumer.settling)
	x.add(l)
	l.mu.Lock()
	l.timer = time.AfterFunc(x.consumer.Lease, func() { _ = x.consumer.Tasks.Go(l.tick) }) // fails only if the client is closed
	l.mu.Unlock()
	d.lease = l
}

// tick renews the lease, and schedules the next renewal.
func (l *attemptLease) tick() {
	if err := l.renew(l.ctx); err != nil && l.ctx.Err() == nil {
		l.all.consumer.Log.Warn("lease not renewed", "message_id", l.d.MessageID, "attempt", l.d.Attempt, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.timer.Reset(l.all.consumer.Lease / 3)
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
	retrier := retry.Retrier{Schedule: l.all.consumer.Reconnect}
	n, err := l.next(ctx)
	for err == nil {
		again, unsent := l.all.consumer.owner.Lease(ctx, l.d, l.id+"/"+strconv.Itoa(n))
		if unsent == nil {
			break
		}
		if !again || retry.Sleep(ctx, retrier.Failed(0)) != nil {
			return unsent
		}
		n, err = l.next(ctx)
	}
	if err != nil {
		return err
	}
	l.confirm(n)
	// Later, the copy is no longer in the lease queue.
	arriving, cancelArriving := context.WithTimeoutCause(ctx, l.all.consumer.Lease, errExpired)
	defer cancelArriving()
	if err := l.await(arriving, n); err != nil {
		return err
	}
	select {
	case <-l.acked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next returns the number of the next copy. It acknowledges earlier copies whose confirm was lost. While the attempt does not
// hold a message, another copy could be a second message, so next waits for a process that has just reconnected.
func (l *attemptLease) next(ctx context.Context) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.leased && !l.ended && !l.holds() {
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	switch {
	case l.ended:
		return 0, ErrLost
	case !l.leased && l.d.session.ctx.Err() != nil:
		return 0, errNoMessage
	}
	if best := l.best(); best <= l.confirmed {
		for n := range l.copies {
			if n > l.confirmed {
				l.drop(n, ack.Ack)
			}
		}
	}
	l.sent++
	l.sentAt = time.Now()
	return l.sent, nil
}

// best returns the number of the newest confirmed copy that is held, or otherwise of the newest copy; 0: none is held.
func (l *attemptLease) best() (best int) {
	for n := range l.copies {
		if better := n <= l.confirmed; better && (n > best || best > l.confirmed) || !better && n > best && (best == 0 || best > l.confirmed) {
			best = n
		}
	}
	return best
}

// holds reports whether the attempt holds a copy on an open channel.
func (l *attemptLease) holds() bool {
	best := l.best()
	return best > 0 && l.copies[best].ctx.Err() == nil
}

// drop settles a copy.
func (l *attemptLease) drop(n int, v ack.Verb) (settled bool) {
	c := l.copies[n]
	delete(l.copies, n)
	return c.acks.Settle(c.tag, v)
}

// await waits until the attempt holds copy n or a newer copy, which the broker has confirmed.
func (l *attemptLease) await(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		best, changed := l.best(), l.changed
		holds := best >= n && best <= l.confirmed
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

// confirm records that the broker has stored copy n.
func (l *attemptLease) confirm(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed, l.until = n, l.sentAt.Add(l.all.consumer.Lease)
	l.replace()
}

// receive holds copy n. It returns the verb for a copy that the attempt does not need.
func (l *attemptLease) receive(n int, in heldCopy) (v ack.Verb, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, twice := l.copies[n]
	switch {
	case l.ended:
		return l.verb(), true
	case !l.leased && l.d.session.ctx.Err() != nil, twice:
		return ack.Ack, true // the broker has redelivered the original
	}
	l.copies[n] = in
	if l.expiring != nil {
		l.expiring.Stop()
	}
	l.replace()
	return 0, false
}

// replace acknowledges the messages that a confirmed copy replaces. A copy that arrives is not necessarily stored yet, so it
// replaces nothing before its confirm.
func (l *attemptLease) replace() {
	close(l.changed)
	l.changed = make(chan struct{})
	best := l.best()
	if l.ended || best == 0 || best > l.confirmed {
		return
	}
	for n := range l.copies {
		if n < best {
			l.drop(n, ack.Ack)
		}
	}
	if l.leased {
		return
	}
	if l.d.session.ctx.Err() != nil { // the broker has redelivered the original
		l.drop(best, ack.Ack)
		return
	}
	l.leased = true
	if l.all.consumer.Tasks.Go(l.ackOriginal) != nil {
		close(l.acked) // the client is closed, which returns the original
	}
}

// ackOriginal acknowledges the original. Until the broker has processed the ack, a lost connection duplicates the message.
func (l *attemptLease) ackOriginal() {
	l.all.yield(l.d.session.ctx)
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

// interrupted records that the channel of the held copies has closed.
func (l *attemptLease) interrupted(acks *ack.Acker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, c := range l.copies {
		if c.acks == acks {
			delete(l.copies, n)
		}
	}
	if !l.ended && l.leased && len(l.copies) == 0 {
		l.expiring = time.AfterFunc(time.Until(l.until), l.expire)
	}
}

// expire ends a lease that holds no copy.
func (l *attemptLease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.copies) > 0 {
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
	for n := range l.copies {
		l.drop(n, l.verb())
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
	ended, leased := l.ended, l.leased
	l.mu.Unlock()
	if leased {
		<-l.acked // before the end of a drain closes the session
	}
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
		if l.holds() {
			settled := l.drop(l.best(), v)
			l.all.note(v != ack.Ack || !settled)
			l.finish(nil)
			l.mu.Unlock()
			if !settled {
				return ErrLost
			}
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.ctx.Done():
			return ErrLost
		}
	}
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
	if best := l.best(); best > 0 {
		l.drop(best, ack.DeadLetter)
	}
	for n := range l.copies {
		l.drop(n, ack.Ack)
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
