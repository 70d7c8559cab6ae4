// Package ack settles the deliveries of one AMQP channel.
//
// It promises that the broker is told exactly what the worker has decided, in few
// frames: contiguous acknowledgements share a frame, and no acknowledgement waits
// longer than a few milliseconds for others. A caller can wait until the broker has
// taken an acknowledgement. After the channel is gone nothing is written, which
// fences off the deliveries of a lost connection: the broker delivers them again.
//
// The package imports the standard library only. It exists so that the pace of
// acknowledgements can be tested without a broker.
package ack

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Channel is the part of an AMQP channel that settles deliveries.
type Channel interface {
	Ack(tag uint64, multiple bool) error
	Nack(tag uint64, multiple, requeue bool) error
	Reject(tag uint64, requeue bool) error

	// Sync returns when the broker's channel has done all that was written before.
	Sync() error
}

// CertainWindow is the largest number of unsettled deliveries for which Sync proves
// that a quorum queue has the acknowledgements. RabbitMQ's channel passes a settlement on
// at once while the queue has at most 32 others to write down. It holds back the
// rest, answers requests meanwhile, and forgets what it holds back when it ends
// (rabbit_fifo_client.erl, SOFT_LIMIT, 3.10 to 4.3).
const CertainWindow = 32

// Verb is the way a delivery is settled.
type Verb uint8

const (
	Ack        Verb = iota // basic.ack
	GiveBack               // basic.nack, requeue: since RabbitMQ 4.3 it does not count towards a delivery limit
	Requeue                // basic.reject, requeue: it counts
	DeadLetter             // basic.reject, no requeue
)

const (
	// pause is the time between two writes of acks. To a quorum queue, each ack costs as much
	// as a delivery, so acks wait for others to share a frame. They do not wait if half of the
	// spare deliveries are to be settled: the broker must not run out of deliveries that it may
	// send. What is given back never waits.
	pause = time.Millisecond

	// gapPauses is the number of pauses that an ack beyond a gap waits. Copies that were
	// published out of order may be confirmed one write of the broker's disk apart.
	gapPauses = 10
)

// Acker settles the deliveries of one channel. Delivery tags count up from 1. An
// ack with the flag multiple covers all tags up to its own. A tag beyond a gap waits a
// little for the gap to close and is then acked by itself, so that a slow handler
// delays no ack but its own:
//
//	settled   1 2 3 · 5 · 7      sent   ack 3 multiple
//	then 4        4              sent   ack 5 multiple
//	nothing                      sent   ack 7
//	then 6            6          sent   ack 6
//
// One goroutine, Run, writes: at once after a pause; otherwise when the pause is over,
// when enough acks have come together, or when there is a settlement other than an
// ack. Its methods are safe for concurrent use.
type Acker struct {
	ch       Channel
	enough   atomic.Int32  // acks do not wait for others
	commands atomic.Uint64 // written

	mu      sync.Mutex
	open    int // deliveries that are not settled
	settled []settlement
	spare   []settlement  // the last batch, for its memory
	urgent  bool          // one of them does not wait for others
	wake    chan struct{} // gets a token when the first is settled, when it is enough, and when ending
	ending  bool
	over    bool          // nothing is written any more
	done    chan struct{} // closed when Run has ended
}

type settlement struct {
	tag   uint64
	verb  Verb
	taken chan<- struct{} // unless nil: closed when the broker has taken it
}

// New returns an Acker for a channel. Run has to be called.
func New(ch Channel) *Acker {
	a := &Acker{ch: ch, wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.SetSpare(1)
	return a
}

// SetSpare sets the number of deliveries that the broker may have outstanding
// besides those that are being handled.
func (a *Acker) SetSpare(n int) { a.enough.Store(int32(max(1, n/2))) }

// Delivered counts a delivery.
func (a *Acker) Delivered() {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
}

// Unsettled returns the number of deliveries that are not settled.
func (a *Acker) Unsettled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// Commands returns an upper bound of the number of commands that RabbitMQ's channel
// has sent to the queue: an ack of several messages is one for each of their consumers.
func (a *Acker) Commands() uint64 { return a.commands.Load() }

// Done returns a channel that is closed when Run has returned.
func (a *Acker) Done() <-chan struct{} { return a.done }

// Settle settles a delivery. It returns false if nothing is written any more: the end of
// the channel gives the delivery back.
func (a *Acker) Settle(tag uint64, v Verb) bool { return a.settle(settlement{tag: tag, verb: v}) }

// AckNow acknowledges a delivery and waits for the broker. It reports whether the
// broker is known to have taken the ack, so that it does not deliver the message again
// even if the channel ends. AMQP has no answer to an ack; the answer to a request that
// follows it on the channel stands for it, as long as at most CertainWindow deliveries
// are unsettled.
func (a *Acker) AckNow(tag uint64) bool {
	taken := make(chan struct{})
	a.settle(settlement{tag: tag, taken: taken})
	select {
	case <-taken:
		return true
	case <-a.done:
		select {
		case <-taken:
			return true
		default:
			return false
		}
	}
}

func (a *Acker) settle(s settlement) bool {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return false
	}
	a.open--
	a.settled = append(a.settled, s)
	n := len(a.settled)
	urgent := s.verb != Ack || s.taken != nil
	a.urgent = a.urgent || urgent
	a.mu.Unlock()
	if n == 1 || urgent || n >= int(a.enough.Load()) {
		a.signal()
	}
	return true
}

// End makes Run return after it has written all settlements so far.
func (a *Acker) End() {
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	a.signal()
}

func (a *Acker) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run writes settlements until End is called or ctx, the channel's life, ends. An
// error means that nothing can be settled on the channel any more.
func (a *Acker) Run(ctx context.Context) error {
	defer close(a.done)
	w := newWriter(a.ch, &a.commands)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for paused := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-timer.C:
			paused = false
		}
		batch, ending := a.take(paused)
		if len(batch) == 0 && (paused || len(w.beyond) == 0) && !ending {
			continue
		}
		all := int(a.enough.Load())
		if ending {
			all = 0
		}
		if err := w.write(batch, paused, all); err != nil || ending {
			return err
		}
		if !paused {
			timer.Reset(pause)
			paused = true
		}
	}
}

// take returns the settlements to write now.
func (a *Acker) take(paused bool) (batch []settlement, ending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !paused || a.ending || a.urgent || len(a.settled) >= int(a.enough.Load()) {
		batch, a.settled, a.spare, a.urgent = a.settled, a.spare[:0], a.settled, false
	}
	a.over = a.ending
	return batch, a.ending
}

// writer knows what the broker was told.
type writer struct {
	ch       Channel
	commands *atomic.Uint64
	floor    uint64             // every tag up to here is settled and written
	written  ranges             // tags above floor that are settled and written
	beyond   map[uint64]waiting // acks that are not written
	awaiting []chan<- struct{}  // closed after the next Sync
}

// waiting is an ack that is not written.
type waiting struct {
	pauses int // so far
	taken  chan<- struct{}
}

func newWriter(ch Channel, commands *atomic.Uint64) *writer {
	return &writer{ch: ch, commands: commands, written: newRanges(), beyond: map[uint64]waiting{}}
}

// write settles a batch. Acks beyond gaps are all written where there are so many; else
// those that a caller waits for, and, unless in a pause, those that have waited for
// long enough.
func (w *writer) write(batch []settlement, paused bool, all int) error {
	for _, s := range batch {
		if s.verb == Ack {
			w.beyond[s.tag] = waiting{taken: s.taken}
		} else if err := w.refuse(s); err != nil {
			return err
		}
	}
	if err := w.writeRun(); err != nil {
		return err
	}
	due := func(ack waiting) bool { return ack.taken != nil || ack.pauses >= gapPauses }
	if len(w.beyond) >= all {
		due = func(waiting) bool { return true }
	}
	if err := w.writeBeyond(due); err != nil {
		return err
	}
	if !paused {
		for tag, ack := range w.beyond {
			ack.pauses++
			w.beyond[tag] = ack
		}
	}
	if len(w.awaiting) == 0 {
		return nil
	}
	if err := w.ch.Sync(); err != nil {
		return err
	}
	for _, taken := range w.awaiting {
		close(taken)
	}
	w.awaiting = nil
	return nil
}

// refuse writes a settlement other than an ack.
func (w *writer) refuse(s settlement) (err error) {
	switch s.verb {
	case GiveBack:
		err = w.ch.Nack(s.tag, false, true)
	case Requeue:
		err = w.ch.Reject(s.tag, true)
	case DeadLetter:
		err = w.ch.Reject(s.tag, false)
	}
	w.commands.Add(1)
	w.written.add(s.tag)
	return err
}

// maxConsumers is the number of consumers of one channel whose deliveries may be
// unsettled at a time, and so the number of commands that an ack of several makes.
const maxConsumers = 4

// writeRun acks the longest run above floor. The ack must name a tag that the broker
// still waits for: the last one that is acked now, not one that was written before.
func (w *writer) writeRun() error {
	var last, count uint64
	for {
		next := w.floor + 1
		if ack, found := w.beyond[next]; found {
			count++
			last, w.floor = next, next
			w.remove(next, ack)
			continue
		}
		end, found := w.written.take(next)
		if !found {
			break
		}
		w.floor = end
	}
	if count == 0 {
		return nil
	}
	w.commands.Add(min(count, maxConsumers))
	return w.ch.Ack(last, count > 1)
}

// writeBeyond writes acks beyond gaps that are due.
func (w *writer) writeBeyond(due func(waiting) bool) error {
	var tags []uint64
	for tag, ack := range w.beyond {
		if due(ack) {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	for _, tag := range tags {
		w.remove(tag, w.beyond[tag])
		w.written.add(tag)
		w.commands.Add(1)
		if err := w.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) remove(tag uint64, ack waiting) {
	delete(w.beyond, tag)
	if ack.taken != nil {
		w.awaiting = append(w.awaiting, ack.taken)
	}
}
