// Package ack settles the deliveries of one AMQP channel.
//
// It sends the decisions of the worker to the broker unchanged, but in few frames. Contiguous acknowledgements share a
// frame, and an acknowledgement waits at most about 15 ms for others. A caller can wait until the broker has processed
// an acknowledgement. The package does not write to a closed channel, so the broker redelivers the deliveries of a lost
// connection.
//
// The package imports the standard library only. The tests check the timing of acknowledgements without a broker.
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

	// Sync returns when the broker's channel has processed all earlier writes.
	Sync() error
}

// CertainWindow is the largest number of unsettled deliveries for which Sync proves that a quorum queue has the
// acknowledgements. RabbitMQ's channel sends a settlement to the queue immediately if the queue has at most 32 other
// settlements to write. Otherwise it holds the settlement back, answers requests in the meantime, and loses the
// settlement if it closes (rabbit_fifo_client.erl, SOFT_LIMIT, 3.10 to 4.3).
const CertainWindow = 32

// Verb specifies how a delivery is settled.
type Verb uint8

const (
	Ack           Verb = iota // basic.ack
	NackRequeue               // basic.nack with requeue; does not count towards a delivery limit since RabbitMQ 4.3
	RejectRequeue             // basic.reject with requeue; counts towards a delivery limit
	DeadLetter                // basic.reject without requeue
	flush                     // does not settle a delivery; see Flush
)

const (
	// pause is the time between two writes of acks. In a quorum queue, each ack costs as much as a delivery, so acks
	// wait for others to share a frame. If half of the spare deliveries (see SetSpare) are settled, acks do not wait, so
	// that the broker can always send further deliveries. Other settlements, and the acks of AckNow, never wait.
	pause = 5 * time.Millisecond

	// gapPauses is the number of pauses for which an ack beyond a gap waits. Confirms of copies can arrive out of order,
	// up to one disk write of the broker apart. While another program uses the processor of one handler, the others can
	// settle half of the spare deliveries, so acks beyond a gap wait until three quarters are settled.
	gapPauses = 2
)

// Acker settles the deliveries of one channel. Delivery tags count up from 1. An
// ack with the flag multiple covers all tags up to its own. A tag beyond a gap waits
// briefly for the gap to close, and then gets a separate ack. A slow handler therefore
// delays only its own ack:
//
//	settled   1 2 3 · 5 · 7      sent   ack 3 multiple
//	then 4        4              sent   ack 5 multiple
//	no more                      sent   ack 7
//	then 6            6          sent   ack 6
//
// Run writes immediately if no pause is running. Otherwise it writes when the pause ends, when enough acks have
// accumulated, or on a call to AckNow or a settlement other than an ack. The methods are safe for concurrent use.
type Acker struct {
	ch Channel
	counters

	mu       sync.Mutex
	spare    int // see SetSpare; at least 1
	open     int // unsettled deliveries
	gapped   int // acks beyond gaps that Run has taken, but not written
	settled  []settlement
	previous []settlement  // the previous batch; its memory is reused
	urgent   bool          // whether one of the settlements does not wait for others
	wake     chan struct{} // receives a token on the first settlement, on an urgent settlement, when acks do not wait, and on End
	ending   bool
	stopped  bool          // whether settle refuses further settlements
	done     chan struct{} // closed when Run returns
}

type counters struct {
	commands  atomic.Uint64 // see Commands
	consumers atomic.Uint64 // see Subscribed
}

type settlement struct {
	tag       uint64
	verb      Verb
	confirmed chan<- struct{} // closed when the broker has processed the settlement; may be nil
}

// New returns an Acker for a channel. The caller must call Run.
func New(ch Channel) *Acker {
	return &Acker{ch: ch, spare: 1, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// SetSpare sets the number of deliveries that can be unsettled in addition to the deliveries in handlers.
func (a *Acker) SetSpare(n int) {
	a.mu.Lock()
	a.spare = max(1, n)
	a.mu.Unlock()
}

// Subscribed counts a consumer of a queue. Earlier consumers can still have unsettled deliveries.
func (a *Acker) Subscribed() { a.consumers.Add(1) }

// Delivered counts a delivery.
func (a *Acker) Delivered() {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
}

// Unsettled returns the number of unsettled deliveries.
func (a *Acker) Unsettled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// Commands returns an upper bound for the number of commands that RabbitMQ's channel has sent to the queue. An ack of
// several messages results in one command for each of their consumers, which Subscribed counts.
func (a *Acker) Commands() uint64 { return a.commands.Load() }

// Done returns a channel that is closed when Run has returned.
func (a *Acker) Done() <-chan struct{} { return a.done }

// Settle settles a delivery. It returns false if Run has already taken its last settlements, after a call to End. In
// this case the broker requeues the delivery when the channel closes.
func (a *Acker) Settle(tag uint64, v Verb) bool { return a.settle(settlement{tag: tag, verb: v}) }

// AckNow acknowledges a delivery and waits for the broker. It reports whether the broker has certainly processed the
// ack and therefore does not redeliver the message, even if the channel closes. AMQP does not define an answer to an
// ack. The answer to a later request on the channel proves the ack, as long as at most CertainWindow deliveries are
// unsettled.
func (a *Acker) AckNow(tag uint64) bool {
	confirmed := make(chan struct{})
	a.settle(settlement{tag: tag, confirmed: confirmed})
	return a.await(confirmed)
}

// Flush waits until the broker's channel has processed all settlements so far. It returns false if they can be lost.
func (a *Acker) Flush() bool {
	confirmed := make(chan struct{})
	return a.settle(settlement{verb: flush, confirmed: confirmed}) && a.await(confirmed)
}

// await reports whether confirmed closes before Run returns.
func (a *Acker) await(confirmed <-chan struct{}) bool {
	select {
	case <-confirmed:
		return true
	case <-a.done:
		select {
		case <-confirmed:
			return true
		default:
			return false
		}
	}
}

func (a *Acker) settle(s settlement) bool {
	a.mu.Lock()
	if a.stopped {
		a.mu.Unlock()
		return false
	}
	if s.verb != flush {
		a.open--
	}
	a.settled = append(a.settled, s)
	a.urgent = a.urgent || s.verb != Ack || s.confirmed != nil
	wakes := len(a.settled) == 1 || a.mustWrite()
	a.mu.Unlock()
	if wakes {
		a.signal()
	}
	return true
}

// mustWrite reports whether Run must write without waiting for further settlements. The caller holds mu.
func (a *Acker) mustWrite() bool {
	n := len(a.settled)
	return a.urgent || n >= max(1, a.spare/2) || n > 0 && n+a.gapped >= gapLimit(a.spare)
}

// gapLimit is the number of acks beyond gaps that do not wait for the gaps to close.
func gapLimit(spare int) int { return max(1, spare*3/4) }

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

// Run writes settlements until End is called, a write fails, or ctx, the context of the channel, is done. After an
// error, the channel can no longer settle deliveries.
func (a *Acker) Run(ctx context.Context) error {
	defer close(a.done)
	w := newWriter(a.ch, &a.counters)
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
		batch, all, ending := a.take(paused)
		if len(batch) == 0 && (paused || len(w.gapped) == 0) && !ending {
			continue
		}
		if err := w.write(batch, paused, all); err != nil || ending {
			return err
		}
		a.mu.Lock()
		a.gapped = len(w.gapped)
		if a.mustWrite() { // no further settlement may come until the broker has these
			a.signal()
		}
		a.mu.Unlock()
		if !paused {
			timer.Reset(pause)
			paused = true
		}
	}
}

// take returns the settlements to write now, and the number of acks beyond gaps that do not wait.
func (a *Acker) take(paused bool) (batch []settlement, all int, ending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !paused || a.ending || a.mustWrite() {
		batch, a.settled, a.previous, a.urgent = a.settled, a.previous[:0], a.settled, false
	}
	if a.stopped = a.ending; a.ending {
		return batch, 0, true
	}
	return batch, gapLimit(a.spare), false
}

// writer tracks the settlements that were written to the channel.
type writer struct {
	ch          Channel
	counters    *counters
	settledUpTo uint64                // this tag and all lower tags are settled and written
	written     ranges                // tags above settledUpTo that are settled and written
	gapped      map[uint64]waitingAck // acks that are not written, because of a gap
	awaiting    []chan<- struct{}     // closed after the next Sync
}

// waitingAck is an ack that has not been written yet.
type waitingAck struct {
	pauses    int // number of pauses so far
	confirmed chan<- struct{}
}

func newWriter(ch Channel, c *counters) *writer {
	return &writer{ch: ch, counters: c, written: newRanges(), gapped: map[uint64]waitingAck{}}
}

// write settles a batch. The parameter all is a threshold: if at least that many acks are beyond gaps, write sends
// every one of them. Otherwise it sends only the acks with a waiting caller and the acks that have waited for
// gapPauses. A pause counts at the first write after it.
func (w *writer) write(batch []settlement, paused bool, all int) error {
	for _, s := range batch {
		switch s.verb {
		case Ack:
			w.gapped[s.tag] = waitingAck{confirmed: s.confirmed}
		case flush:
			all = 0
			w.awaiting = append(w.awaiting, s.confirmed)
		default:
			if err := w.writeOther(s); err != nil {
				return err
			}
		}
	}
	if err := w.writeRun(); err != nil {
		return err
	}
	due := func(ack waitingAck) bool { return ack.confirmed != nil || ack.pauses >= gapPauses }
	if len(w.gapped) >= all {
		due = func(waitingAck) bool { return true }
	}
	if err := w.writeGapped(due); err != nil {
		return err
	}
	if !paused {
		for tag, ack := range w.gapped {
			ack.pauses++
			w.gapped[tag] = ack
		}
	}
	if len(w.awaiting) == 0 {
		return nil
	}
	if err := w.ch.Sync(); err != nil {
		return err
	}
	for _, confirmed := range w.awaiting {
		close(confirmed)
	}
	w.awaiting = nil
	return nil
}

// writeOther writes a settlement other than an ack.
func (w *writer) writeOther(s settlement) (err error) {
	switch s.verb {
	case NackRequeue:
		err = w.ch.Nack(s.tag, false, true)
	case RejectRequeue:
		err = w.ch.Reject(s.tag, true)
	case DeadLetter:
		err = w.ch.Reject(s.tag, false)
	}
	w.counters.commands.Add(1)
	w.written.add(s.tag)
	return err
}

// writeRun acks the longest run above settledUpTo. The ack carries the last newly acked tag, because settledUpTo may
// already be settled, and the broker closes the channel for an ack of a settled tag.
func (w *writer) writeRun() error {
	var last, count uint64
	for {
		next := w.settledUpTo + 1
		if ack, found := w.gapped[next]; found {
			count++
			last, w.settledUpTo = next, next
			w.remove(next, ack)
			continue
		}
		end, found := w.written.take(next)
		if !found {
			break
		}
		w.settledUpTo = end
	}
	if count == 0 {
		return nil
	}
	w.counters.commands.Add(min(count, w.counters.consumers.Load()))
	return w.ch.Ack(last, count > 1)
}

// writeGapped writes the acks beyond gaps that are due.
func (w *writer) writeGapped(due func(waitingAck) bool) error {
	var tags []uint64
	for tag, ack := range w.gapped {
		if due(ack) {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	for _, tag := range tags {
		w.remove(tag, w.gapped[tag])
		w.written.add(tag)
		w.counters.commands.Add(1)
		if err := w.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) remove(tag uint64, ack waitingAck) {
	delete(w.gapped, tag)
	if ack.confirmed != nil {
		w.awaiting = append(w.awaiting, ack.confirmed)
	}
}
