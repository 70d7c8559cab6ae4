package consume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// term is one subscription to the held queue of a partition, which may become the ownership of the partition. Its goroutine
// calls the machine; other goroutines use call.
type term struct {
	*session  // of the deliveries; its channel is that of the held queue
	partition *partition
	id        string
	machine   *ordered.Partition // nil until the first delivery
	part      *amqpconn.Channel  // of the partition; nil until the ownership
	handling  context.Context    // of the handlers

	heldIn, partIn amqpconn.Deliveries
	calls          chan func()
	begins         map[*ordered.Entry]func(ordered.Permission) // attempts that wait for a Permit
	ended          chan struct{}                               // closed when serve has returned
	acked          int
}

// newTerm subscribes to a held queue.
func newTerm(ctx context.Context, p *partition, conn *amqpconn.Conn) (*term, error) {
	c := p.group.consumer
	ch, err := conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	t := &term{
		session: &session{consumer: c, conn: conn, ch: ch, countsNacks: CountsNacks(conn.Version())}, partition: p, id: rand.Text(),
		calls: make(chan func()), begins: map[*ordered.Entry]func(ordered.Permission){}, ended: make(chan struct{}),
	}
	t.ctx, t.end = context.WithCancelCause(c.settling)
	handling, cancel := context.WithCancelCause(c.handling)
	t.handling = handling
	context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	context.AfterFunc(ch.Context(), t.endWithChannel)
	t.heldIn, err = t.consume(ctx, ch, HeldQueue(p.name), ordered.HeldWindow)
	if err != nil {
		t.finish()
		return nil, err
	}
	c.Log.Info("consuming", "generation", conn.Generation(), "partition", p.name)
	t.publish(ordered.Record{Kind: ordered.Join, Owner: t.id}, nil)
	return t, nil
}

func (t *term) consume(ctx context.Context, ch *amqpconn.Channel, queue string, window int) (amqpconn.Deliveries, error) {
	var args topology.Table
	if !t.countsNacks { // RabbitMQ 4.3 and later; see docs/compatibility.md
		args = topology.Table{"x-consumer-timeout": keepAllTimes}
	}
	return ch.Consume(ctx, queue, t.consumer.Tag+"-"+t.id, window, args, func(amqpconn.Deliveries) {}) // the channel closes next
}

// finish closes the channels: first that of the partition, so that no other process becomes the owner before its messages are
// returned. It does not cancel the consumers, because the next consumer would then start while messages are unacknowledged.
func (t *term) finish() {
	close(t.ended)
	if t.machine != nil {
		t.partition.owner.Store(nil)
		t.partition.disown()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), LastGrace)
	defer cancel()
	if t.part != nil {
		t.part.Close(ctx)
	}
	t.ch.Close(ctx)
	t.end(errReleased)
}

// serve processes events until the subscription ends. It returns errReleased if this process has given up the partition.
func (t *term) serve(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	draining, release := ctx.Done(), t.partition.release
	var handOver <-chan time.Time // before RabbitMQ closes the channel because of the acknowledgement timeout
	if d := t.consumer.deadline; t.countsNacks && d.exists() {
		limit := time.NewTimer(d.after)
		defer limit.Stop()
		handOver = limit.C
	}
	leaving := false
	for {
		if err := t.act(ctx); err != nil {
			if leaving {
				return errReleased
			}
			return err
		}
		if leaving && (t.machine == nil || t.machine.Idle()) {
			t.awaitAcks()
			return errReleased
		}
		timer.Reset(t.untilWake())
		select {
		case in, ok := <-t.heldIn:
			if !ok {
				return t.closeReason()
			}
			if err := t.fromHeld(ctx, in); err != nil {
				return err
			}
			continue
		case in, ok := <-t.partIn:
			if !ok {
				return t.partClosed()
			}
			t.fromPartition(in)
			continue
		case f := <-t.calls:
			f()
			continue
		case <-timer.C:
			if t.machine != nil {
				t.machine.Tick(time.Now(), t.consumer.Keyed.Owner.Blocked())
			}
			continue
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-t.partition.group.leave.Done():
			return errReleased
		case <-draining:
			draining = nil
		case <-release:
			release = nil
		case <-handOver:
		}
		leaving = true
		if t.machine != nil {
			t.machine.Drain()
		}
	}
}

func (t *term) untilWake() time.Duration {
	if t.machine != nil {
		if at := t.machine.Wake(time.Now()); !at.IsZero() {
			return max(0, time.Until(at))
		}
	}
	return time.Hour
}

// partClosed returns the reason why the partition's channel has closed.
func (t *term) partClosed() error {
	if t.part.IsClosed() {
		<-t.part.Context().Done()
		return fmt.Errorf("channel of the partition closed: %w", context.Cause(t.part.Context()))
	}
	return errCancelled
}

// awaitAcks waits until RabbitMQ can no longer lose acks when the channels close; see ack.CertainWindow.
func (t *term) awaitAcks() {
	if t.acked > 0 && t.conn.IsRabbitMQ() {
		_ = retry.Sleep(t.ctx, quorumAckTime/10)
	}
}

// fromHeld passes a delivery of the held queue to the machine. The first delivery shows that the subscription is active.
func (t *term) fromHeld(ctx context.Context, in amqpconn.Incoming) error {
	d := t.delivery(in)
	redelivered, suspect := d.Redelivered, d.isReturned()
	r, ok := takeRecord(d)
	if !ok {
		t.consumer.Log.Error("message in the held queue has no record", "queue", HeldQueue(t.partition.name), "message_id", d.MessageID)
		return nil
	}
	if t.machine == nil {
		if !t.partition.accept(ctx) {
			return errReleased
		}
		k := t.consumer.Keyed
		t.machine = ordered.New(ordered.Config{
			Owner: t.id, Lease: lease, Patience: patience, MaxHeld: k.MaxHeld, MaxBytes: k.MaxBytes, OnFull: k.OnFull,
			Rate: k.Rate, Window: ordered.Window / 2, CrashLimit: t.consumer.keyedCrashLimit(),
		})
		t.partition.owner.Store(t)
	}
	if r.Kind == ordered.Join && r.Owner != t.id {
		t.partition.group.check()
	}
	t.machine.Held(time.Now(), ordered.Delivery{Tag: d.Tag, Redelivered: redelivered, Suspect: suspect, Size: len(d.Body), Message: d}, r)
	return nil
}

func (t *term) fromPartition(in amqpconn.Incoming) {
	d := t.delivery(in)
	suspect := d.isReturned()
	d.Headers = withoutDelivery(amqpconn.ReadTable(d.Headers))
	t.machine.Received(time.Now(), ordered.Delivery{Tag: d.Tag, Suspect: suspect, Size: len(d.Body), Message: d}, t.consumer.Keyed.Owner.OrderKey(d))
}

func (t *term) delivery(in amqpconn.Incoming) *Delivery {
	d := t.consumer.owner.New()
	d.Delivery, d.session, d.term, d.Queue, d.Source = in.Delivery, t.session, t, t.consumer.Queue, t.partition.name
	d.arrived, d.inTime, d.FrameSize = time.Now(), t.ctx, int32(t.conn.FrameSize())
	return d
}

// act carries out the actions of the machine.
func (t *term) act(ctx context.Context) error {
	if t.machine == nil {
		return nil
	}
	for _, action := range t.machine.Actions() {
		var err error
		switch a := action.(type) {
		case ordered.AckHeld:
			t.acked++
			err = t.ch.Ack(a.Tag, false)
		case ordered.RequeueHeld:
			err = t.ch.Nack(a.Tag, false, true)
		case ordered.AckPartition:
			t.acked++
			err = t.part.Ack(a.Tag, false)
		case ordered.Publish:
			t.publish(a.Record, a.Message)
		case ordered.Consume:
			t.consumer.Log.Info("partition owned", "partition", t.partition.name, "epoch", t.machine.Epoch())
			if t.part, err = t.conn.Open(ctx); err == nil {
				t.partIn, err = t.consume(ctx, t.part, t.partition.name, ordered.Window)
			}
		case ordered.Start:
			d := a.Entry.Message.(*Delivery)
			d.entry, d.Epoch, d.alone = a.Entry, t.machine.Epoch(), a.Crashes >= suspectAfter
			t.partition.group.request(d)
		case ordered.Permit:
			answer := t.begins[a.Entry]
			delete(t.begins, a.Entry)
			answer(a.Permission)
		case ordered.Park:
			d := a.Entry.Message.(*Delivery)
			d.entry, d.Epoch = a.Entry, t.machine.Epoch()
			reason := errHeldFull
			switch {
			case a.By != "":
				reason = ErrParkedBy(a.By)
			case a.Crashes > 0:
				reason = fmt.Errorf("not handled again: %d attempts have not ended (CrashLimit)", a.Crashes)
			case a.Refused != nil:
				reason = fmt.Errorf("cannot wait in the held queue: %w", a.Refused)
			}
			err = t.consumer.Tasks.Go(func() {
				d.read()
				d.Crashes = a.Crashes
				t.consumer.Keyed.Owner.Park(t.handling, d, reason)
			})
		case ordered.Resign:
			err = a.Reason
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publish publishes a record. If the broker does not accept it, the message of a copy is parked, or the term ends.
func (t *term) publish(r ordered.Record, content any) {
	k, queue := t.consumer.Keyed.Owner, HeldQueue(t.partition.name)
	var m *amqpconn.Message
	var d *Delivery
	var err error
	switch x := content.(type) {
	case *Delivery: // a follower
		x.read()
		d = x
		m, err = k.Follower(x)
	case retried:
		d, m = x.d, x.copy
	}
	if err == nil {
		m, err = withRecord(m, r, d)
	}
	run := t.consumer.Tasks.Go(func() {
		if err == nil {
			err = k.Hold(t.ctx, queue, m)
		}
		switch _, refused := errors.AsType[*CopyRefusedError](err); {
		case err == nil || t.ctx.Err() != nil:
		case refused && t.call(func() {
			if !t.machine.Refused(time.Now(), r, err) {
				t.end(err)
			}
		}):
		default:
			t.end(fmt.Errorf("cannot publish to %q: %w", queue, err))
		}
	})
	if run != nil {
		t.end(run)
	}
}

// CopyRefusedError reports that the broker refuses the copy of a message, and has not stored it.
type CopyRefusedError struct{ Err error }

func (e *CopyRefusedError) Error() string { return e.Err.Error() }

func (e *CopyRefusedError) Unwrap() error { return e.Err }

// retried is the content of the copy of a message that has failed.
type retried struct {
	d    *Delivery
	copy *amqpconn.Message
}

// call runs f on the goroutine of the term. It returns false if the term has ended.
func (t *term) call(f func()) bool {
	select {
	case t.calls <- f:
		return true
	case <-t.ended:
		return false
	}
}

// begin reports whether the attempt of a delivery may start. Otherwise, it has called End.
func (t *term) begin(d *Delivery) (ok bool) {
	answers := make(chan bool, 1)
	answer := func(p ordered.Permission) {
		if p == ordered.Denied {
			d.End(ErrNotAttempted, 0, nil) // before the goroutine of the term requests another attempt with this delivery
		}
		answers <- p == ordered.Granted
	}
	if !t.call(func() {
		if p := t.machine.Begin(time.Now(), d.entry); p == ordered.Pending {
			t.begins[d.entry] = answer
		} else {
			answer(p)
		}
	}) {
		d.End(ErrNotAttempted, 0, nil)
		return false
	}
	select {
	case ok = <-answers:
		return ok
	case <-t.ended:
	}
	select {
	case ok = <-answers: // before the end
	default:
		d.End(ErrNotAttempted, 0, nil)
	}
	return ok
}

// drop gives up the start of an attempt.
func (d *Delivery) drop() {
	t := d.term
	_ = t.consumer.Tasks.Go(func() { t.call(func() { t.machine.Abandon(d.entry) }) })
}

// settled reports the result of an attempt.
func (t *term) settled(d *Delivery, r ordered.Result) error {
	if !t.call(func() { t.machine.Finished(time.Now(), d.entry, r) }) {
		return ErrLost
	}
	return nil
}

// Wait makes a failed message wait until due, before all later messages of its key. The copy replaces the message. It returns
// ErrLost if the channel of the delivery has closed.
func (d *Delivery) Wait(due time.Time, c *amqpconn.Message) error {
	return d.term.settled(d, ordered.Result{Retry: true, Due: due, Message: retried{d, c}})
}

// requeuePause is the pause before the next attempt if a message could not be settled.
const requeuePause = time.Second

// putBack repeats the attempt soon, or leaves the message to the next owner if the process stops.
func (d *Delivery) putBack() {
	t := d.term
	if t.consumer.draining.Err() != nil || t.ctx.Err() != nil {
		_ = t.settled(d, ordered.Result{Abandoned: true})
		return
	}
	m, err := t.consumer.Keyed.Owner.Follower(d)
	if err != nil {
		t.end(errors.Join(ErrLost, err))
		return
	}
	_ = d.Wait(time.Now().Add(requeuePause), m)
}
