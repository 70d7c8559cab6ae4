package reprise

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// acknowledger is the part of an AMQP channel that settles deliveries.
type acknowledger interface {
	Ack(tag uint64, multiple bool) error
	Nack(tag uint64, multiple, requeue bool) error
	Reject(tag uint64, requeue bool) error

	// Sync returns when the broker has done all that was written before.
	Sync() error
}

// acker settles the deliveries of one session, over the channel they came on
// and no other: after that channel is gone, settling does nothing.
//
// Tags count up from 1 on a channel with consumers only. Where all tags up to
// some tag are settled, one multiple ack tells the broker so. A tag beyond a gap
// waits a little for the gap to close, and is then acked by itself, so that a slow
// handler holds back nobody's ack but its own:
//
//	settled   1 2 3 · 5 · 7      sent   ack 3 multiple
//	then 4        4              sent   ack 5 multiple
//	nothing                      sent   ack 7
//	then 6            6          sent   ack 6
//
// One goroutine writes: at once after a pause, and else when the pause is over, or
// enough has come together, or something other than an ack has: nobody waits for
// an ack, but somebody for what is given back. An ack costs the broker as much as a
// delivery, so the busier the channel, the more messages share one.
type acker struct {
	ch     acknowledger
	enough atomic.Int32 // settlements do not wait for others

	mu      sync.Mutex
	settled []settlement
	urgent  bool          // one of them is not to wait for others
	wake    chan struct{} // gets a token when the first is settled, when it is enough, and when ending
	ending  bool
	done    chan struct{} // closed when run has ended
	wrote   time.Time     // when an ack was last written; valid once done is closed
}

// ackPause is how long the broker is told nothing, once it was told something,
// unless half of what it lets be unsettled waits to be told: it must not run out.
const ackPause = time.Millisecond

// gapPauses is for how many pauses an ack beyond a gap waits. Copies that were
// published out of order may be confirmed a write of the broker's disk apart.
const gapPauses = 10

type settlement struct {
	tag  uint64
	verb verb
	told chan<- struct{} // unless nil: closed when the broker has done it
}

// verb is what the broker is told about a delivery.
type verb uint8

const (
	acked        verb = iota // basic.ack
	givenBack                // basic.nack, requeue: since RabbitMQ 4.3 it does not count towards a delivery limit
	requeued                 // basic.reject, requeue: it counts
	deadLettered             // basic.reject, no requeue
)

func newAcker(ch acknowledger) *acker {
	a := &acker{ch: ch, wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.expect(1)
	return a
}

// expect tells how many deliveries the broker lets be unsettled beside those that
// are being handled.
func (a *acker) expect(spare int) { a.enough.Store(int32(max(1, spare/2))) }

// ack has the delivery acknowledged.
func (a *acker) ack(tag uint64) { a.settle(settlement{tag: tag}) }

// giveBack returns the delivery to its queue, as untouched as RabbitMQ can.
func (a *acker) giveBack(tag uint64) { a.settle(settlement{tag: tag, verb: givenBack}) }

// ackNow has the delivery acknowledged, and reports whether the broker is known
// to have done it. AMQP has no answer to an ack: it is the answer to a request
// that follows it on the channel.
func (a *acker) ackNow(tag uint64) bool {
	told := make(chan struct{})
	a.settle(settlement{tag: tag, told: told})
	select {
	case <-told:
		return true
	case <-a.done:
		select {
		case <-told:
			return true
		default:
			return false
		}
	}
}

func (a *acker) settle(s settlement) {
	a.mu.Lock()
	a.settled = append(a.settled, s)
	n := len(a.settled)
	urgent := s.verb != acked || s.told != nil
	a.urgent = a.urgent || urgent
	a.mu.Unlock()
	if n == 1 || urgent || n >= int(a.enough.Load()) {
		a.signal()
	}
}

// end makes run return once everything settled so far is written.
func (a *acker) end() {
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	a.signal()
}

func (a *acker) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run writes settlements until end is called or ctx, the channel's life, ends. An
// error means that the channel cannot be settled on any more.
func (a *acker) run(ctx context.Context) error {
	defer close(a.done)
	prefix := newPrefix(a.ch)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for paused := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-pause.C:
			paused = false
		}
		batch, ending := a.take(paused)
		if len(batch) == 0 && (paused || len(prefix.beyond) == 0) && !ending {
			continue
		}
		if slices.ContainsFunc(batch, func(s settlement) bool { return s.verb == acked }) || len(prefix.beyond) > 0 {
			a.wrote = time.Now()
		}
		awaited := slices.ContainsFunc(batch, func(s settlement) bool { return s.told != nil })
		err := prefix.write(batch)
		if err == nil {
			switch all := awaited || ending || len(prefix.beyond) >= int(a.enough.Load()); {
			case all:
				err = prefix.writeBeyond(0)
			case !paused:
				err = prefix.writeBeyond(gapPauses)
			}
		}
		if err == nil && awaited {
			err = a.tell(batch)
		}
		if err != nil || ending {
			return err
		}
		if !paused {
			pause.Reset(ackPause)
			paused = true
		}
	}
}

// take takes what is to be written now.
func (a *acker) take(paused bool) (batch []settlement, ending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !paused || a.ending || a.urgent || len(a.settled) >= int(a.enough.Load()) {
		batch, a.settled, a.urgent = a.settled, nil, false
	}
	return batch, a.ending
}

// tell tells those who wait for it that the broker has done what was written.
func (a *acker) tell(batch []settlement) error {
	if err := a.ch.Sync(); err != nil {
		return err
	}
	for _, s := range batch {
		if s.told != nil {
			close(s.told)
		}
	}
	return nil
}

// prefix knows what the broker has been told.
type prefix struct {
	ch     acknowledger
	floor  uint64         // every tag up to here is settled and told
	told   ranges         // tags above floor that are settled and told
	beyond map[uint64]int // acks above a gap that were not written, and for how many pauses
}

func newPrefix(ch acknowledger) *prefix {
	return &prefix{ch: ch, told: newRanges(), beyond: map[uint64]int{}}
}

// write tells the broker of a batch, but for acks beyond a gap.
func (p *prefix) write(batch []settlement) error {
	for _, s := range batch {
		var err error
		switch s.verb {
		case acked:
			p.beyond[s.tag] = 0
			continue
		case givenBack:
			err = p.ch.Nack(s.tag, false, true)
		case requeued:
			err = p.ch.Reject(s.tag, true)
		case deadLettered:
			err = p.ch.Reject(s.tag, false)
		}
		if err != nil {
			return err
		}
		p.told.add(s.tag)
	}

	// The longest run above floor. Its ack must name a tag the broker still
	// waits for, so the last one that is acked now, not one told before.
	var last uint64
	count := 0
	for {
		next := p.floor + 1
		if _, found := p.beyond[next]; found {
			last, p.floor = next, next
			count++
			delete(p.beyond, next)
			continue
		}
		end, found := p.told.take(next)
		if !found {
			break
		}
		p.floor = end
	}
	if count == 0 {
		return nil
	}
	return p.ch.Ack(last, count > 1)
}

// writeBeyond is called after a pause, and writes the acks beyond gaps that have
// waited for so many.
func (p *prefix) writeBeyond(pauses int) error {
	if len(p.beyond) == 0 {
		return nil
	}
	for _, tag := range slices.Sorted(maps.Keys(p.beyond)) {
		if p.beyond[tag] < pauses {
			p.beyond[tag]++
			continue
		}
		if err := p.ch.Ack(tag, false); err != nil {
			return err
		}
		delete(p.beyond, tag)
		p.told.add(tag)
	}
	return nil
}
