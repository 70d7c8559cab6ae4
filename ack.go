package reprise

import (
	"context"
	"maps"
	"math"
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

	// Sync returns when the broker's channel has done all that was written before.
	// Whether its queue has it is another matter: see window.
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
//
// Where somebody waits for acks, they are written as the window has room for them,
// and so that what else is acked leaves some.
type acker struct {
	ch      acknowledger
	window  *window
	certain bool         // acks are waited for as a rule, and not as an exception
	enough  atomic.Int32 // settlements do not wait for others

	mu      sync.Mutex
	open    int // deliveries that are not settled
	settled []settlement
	urgent  bool          // one of them is not to wait for others
	wake    chan struct{} // gets a token when the first is settled, when it is enough, and when ending
	ending  bool
	over    bool          // nothing is written any more
	done    chan struct{} // closed when run has ended
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
	told chan<- struct{} // unless nil: closed when the broker has taken it
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

// delivered tells of a delivery.
func (a *acker) delivered(tag uint64) {
	a.window.delivered(tag)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
}

// unsettled returns the number of deliveries that are not settled.
func (a *acker) unsettled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// ack has the delivery acknowledged. It returns false where that is not written any
// more.
func (a *acker) ack(tag uint64) bool { return a.settle(settlement{tag: tag}) }

// giveBack returns the delivery to its queue, as untouched as RabbitMQ can.
func (a *acker) giveBack(tag uint64) { a.settle(settlement{tag: tag, verb: givenBack}) }

// ackNow has the delivery acknowledged, and reports whether the broker is known
// to have taken it, and will not deliver it again though the channel ends. AMQP has
// no answer to an ack: it is the answer to a request that follows it on the channel,
// where the ack was within the window.
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

// settle has something settled. It returns false where nothing is written any more:
// the end of the channel gives the delivery back.
func (a *acker) settle(s settlement) bool {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return false
	}
	a.open--
	a.settled = append(a.settled, s)
	n := len(a.settled)
	urgent := s.verb != acked || s.told != nil
	a.urgent = a.urgent || urgent
	a.mu.Unlock()
	if n == 1 || urgent || n >= int(a.enough.Load()) {
		a.signal()
	}
	return true
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
	prefix := newPrefix(a.ch, a.window)
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
		err := prefix.take(batch)
		if err == nil {
			err = a.write(prefix, paused, ending)
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

// write writes the acks that it is time for, as far as there is room.
func (a *acker) write(p *prefix, paused, ending bool) error {
	enough := int(a.enough.Load())
	room := math.MaxInt
	if !ending && (a.certain || p.awaited > 0) {
		if room = a.window.room(); p.awaited == 0 && len(p.beyond) < enough {
			room -= windowReserve
		}
	}
	if room <= 0 {
		return nil
	}
	commands, err := p.writeRun()
	room -= commands
	switch {
	case err != nil:
	case ending || len(p.beyond) >= enough:
		err = p.writeBeyond(0, room)
	case !paused:
		err = p.writeBeyond(gapPauses, room)
	case p.awaited > 0:
		err = p.writeBeyond(math.MaxInt, room)
	}
	if err != nil || len(p.awaiting) == 0 || ending && a.window.room() < 0 {
		return err
	}
	return a.tell(p)
}

// take takes what is to be written now.
func (a *acker) take(paused bool) (batch []settlement, ending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !paused || a.ending || a.urgent || len(a.settled) >= int(a.enough.Load()) {
		batch, a.settled, a.urgent = a.settled, nil, false
	}
	a.over = a.ending
	return batch, a.ending
}

// tell tells those who wait for it that the broker has taken what was written.
func (a *acker) tell(p *prefix) error {
	if err := a.ch.Sync(); err != nil {
		return err
	}
	for _, told := range p.awaiting {
		close(told)
	}
	p.awaiting = nil
	return nil
}

// prefix knows what the broker has been told.
type prefix struct {
	ch       acknowledger
	window   *window
	floor    uint64             // every tag up to here is settled and told
	told     ranges             // tags above floor that are settled and told
	beyond   map[uint64]waiting // acks that were not written
	awaited  int                // of those, somebody waits for
	awaiting []chan<- struct{}  // who waits for those that were written
}

// waiting is an ack that was not written.
type waiting struct {
	pauses int             // for how many it has waited
	told   chan<- struct{} // see settlement
}

func newPrefix(ch acknowledger, w *window) *prefix {
	return &prefix{ch: ch, window: w, told: newRanges(), beyond: map[uint64]waiting{}}
}

// take tells the broker of a batch, but for acks.
func (p *prefix) take(batch []settlement) error {
	for _, s := range batch {
		var err error
		switch s.verb {
		case acked:
			p.beyond[s.tag] = waiting{told: s.told}
			if s.told != nil {
				p.awaited++
			}
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
		p.window.wrote(s.tag, s.tag, 1)
		p.told.add(s.tag)
	}
	return nil
}

// writeRun acks the longest run above floor, and returns how many commands it makes:
// see window. The ack must name a tag the broker still waits for, so the last one that
// is acked now, not one told before.
func (p *prefix) writeRun() (commands int, err error) {
	var first, last, count uint64
	for {
		next := p.floor + 1
		if w, found := p.beyond[next]; found {
			if count++; count == 1 {
				first = next
			}
			last, p.floor = next, next
			p.wrote(next, w)
			continue
		}
		end, found := p.told.take(next)
		if !found {
			break
		}
		p.floor = end
	}
	if count == 0 {
		return 0, nil
	}
	return p.window.wrote(first, last, count), p.ch.Ack(last, count > 1)
}

// writeBeyond writes acks beyond gaps: those that somebody waits for, and those that
// have waited for so many pauses, but at most so many. All others have waited for one
// more then.
func (p *prefix) writeBeyond(pauses, most int) error {
	if len(p.beyond) == 0 {
		return nil
	}
	for _, tag := range slices.Sorted(maps.Keys(p.beyond)) {
		w := p.beyond[tag]
		if most <= 0 || w.told == nil && w.pauses < pauses {
			w.pauses++
			p.beyond[tag] = w
			continue
		}
		if err := p.ch.Ack(tag, false); err != nil {
			return err
		}
		most--
		p.window.wrote(tag, tag, 1)
		p.wrote(tag, w)
		p.told.add(tag)
	}
	return nil
}

// wrote notes that an ack is no longer waiting.
func (p *prefix) wrote(tag uint64, w waiting) {
	delete(p.beyond, tag)
	if w.told != nil {
		p.awaited--
		p.awaiting = append(p.awaiting, w.told)
	}
}
