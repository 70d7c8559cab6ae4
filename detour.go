package reprise

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// detours lead around destinations that do not confirm: a quorum queue without a
// majority, in most cases. What is published there goes over a channel of its own,
// and little of it at a time, until there is an answer in good time again.
//
// It must be a channel of its own. The first message that a channel has for such a
// queue stops that channel at the broker for 65 s, before it is refused; and with 32
// of them unconfirmed RabbitMQ stops reading, after some hundred messages more, the
// whole connection (measured with 3.10 and 4.3; rabbit_fifo_client).
type detours struct {
	answers atomic.Uint64 // how many there were
	silent  atomic.Bool   // there was none while one became late, nor since then
	some    atomic.Bool   // there are late ones, or detours that are still in use

	mu      sync.Mutex
	late    map[destination]*detour
	leaving int // detours that are taken no more, and still in use
}

// detour is the way to one of them. It is taken until there is an answer in good time,
// and stops with the last who uses it then.
type detour struct {
	destination
	via   *publisher // nil until somebody publishes there
	stop  context.CancelFunc
	using int  // how many publications are on it, until nobody waits for them
	over  bool // it is taken no more
}

// maxLate bounds how many destinations are known to be late. Some presets publish under
// keys that do not come twice.
const maxLate = 100

// maxOnDetour bounds what is in flight on the channel of a detour: see detours.
const maxOnDetour = 16

// mark notes that a message has become late, and with it its destination.
func (d *detours) mark(pub *publication) {
	if d.answers.Load() == pub.heard {
		d.silent.Store(true)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	to := pub.destination()
	if d.late[to] != nil {
		return
	}
	if len(d.late) >= maxLate {
		for _, other := range d.late {
			if other.using == 0 {
				d.end(other)
				break
			}
		}
	}
	if d.late == nil {
		d.late = map[destination]*detour{}
	}
	d.late[to] = &detour{destination: to}
	d.some.Store(true)
}

// heard notes an answer about a message.
func (d *detours) heard(pub *publication, inTime bool) {
	d.answers.Add(1)
	if d.silent.Load() {
		d.silent.Store(false)
	}
	if !inTime || !d.some.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.late[pub.destination()]; known != nil {
		d.end(known)
	}
}

// end has a detour not be taken any more. To wait until nobody uses it would be to wait
// for ever where many publish, with little at a time.
func (d *detours) end(known *detour) {
	delete(d.late, known.destination)
	known.over = true
	d.leaving++
	d.left(known)
}

// left stops a detour that is taken no more and that nobody uses.
func (d *detours) left(known *detour) {
	if known.over && known.using == 0 {
		d.leaving--
		if known.stop != nil {
			known.stop()
		}
	}
	d.some.Store(len(d.late)+d.leaving > 0)
}

// way returns the publisher for a message, which is p but for what goes to a late
// destination. leave is to be called when nobody waits for the message any more.
func (p *publisher) way(pub *publication) *publisher {
	d := p.detours
	if !d.some.Load() {
		return p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.late[pub.destination()]
	if known == nil || pub.detour != nil || pub.state.Load() != queued {
		return p
	}
	if known.via == nil {
		ctx, stop := context.WithCancel(p.ctx)
		via := *p
		via.ctx, via.window, via.onDetour = ctx, maxOnDetour, true
		via.requests, via.closed = make(chan *publication, maxQueued), make(chan struct{})
		if p.client.tasks.Go(via.run) != nil { // the client is closed
			stop()
			return p
		}
		known.via, known.stop = &via, stop
	}
	known.using++
	pub.detour = known
	return known.via
}

func (p *publisher) leave(pub *publication) {
	d := p.detours
	if !d.some.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := pub.detour
	if known == nil {
		return
	}
	pub.detour = nil
	known.using--
	d.left(known)
}

// divert leads a message around that was on its way already when its destination
// became late, and reports whether it has.
func (p *publisher) divert(pub *publication) bool {
	via := p.way(pub)
	if via == p {
		return false
	}
	select {
	case via.requests <- pub:
	default:
		if pub.state.CompareAndSwap(queued, abandoned) {
			pub.resolve(fmt.Errorf("%w: too many messages wait for that already", ErrStalled))
		}
	}
	return true
}
