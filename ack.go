package reprise

import (
	"context"
	"sync"
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
// some tag are settled, one multiple ack tells the broker so; a tag beyond a
// gap is acked by itself at once, so that a slow handler holds back nobody's
// ack but its own:
//
//	settled   1 2 3 · 5 · 7      sent   ack 3 multiple, ack 5, ack 7
//	then 4        4              sent   ack 4
//	then 6            6          sent   ack 6
//
// One goroutine writes. Whatever is settled while it is writing makes up the
// next batch: the busier the channel, the fewer the frames.
type acker struct {
	ch acknowledger

	mu      sync.Mutex
	settled []settlement
	wake    chan struct{} // holds one token while settled is not empty, or ending
	ending  bool
	done    chan struct{} // closed when run has ended
}

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
	return &acker{ch: ch, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

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
	a.mu.Unlock()
	a.signal()
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
	prefix := prefix{ch: a.ch, told: newRanges()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
		a.mu.Lock()
		batch, ending := a.settled, a.ending
		a.settled = nil
		a.mu.Unlock()
		err := prefix.write(batch)
		if err == nil {
			err = a.tell(batch)
		}
		if err != nil || ending {
			return err
		}
	}
}

// tell tells those who wait for it that the broker has done what was written.
func (a *acker) tell(batch []settlement) error {
	synced := false
	for _, s := range batch {
		if s.told == nil {
			continue
		}
		if !synced {
			if err := a.ch.Sync(); err != nil {
				return err
			}
			synced = true
		}
		close(s.told)
	}
	return nil
}

// prefix knows what the broker has been told.
type prefix struct {
	ch    acknowledger
	floor uint64 // every tag up to here is settled and told
	told  ranges // tags above floor that are settled and told
}

func (p *prefix) write(batch []settlement) error {
	pending := map[uint64]bool{} // acks
	for _, s := range batch {
		var err error
		switch s.verb {
		case acked:
			pending[s.tag] = true
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
		if pending[next] {
			last, p.floor = next, next
			count++
			delete(pending, next)
			continue
		}
		end, found := p.told.take(next)
		if !found {
			break
		}
		p.floor = end
	}
	if count > 0 {
		if err := p.ch.Ack(last, count > 1); err != nil {
			return err
		}
	}
	for _, s := range batch { // in the order they were settled
		if pending[s.tag] {
			if err := p.ch.Ack(s.tag, false); err != nil {
				return err
			}
			p.told.add(s.tag)
		}
	}
	return nil
}
