package reprise

import (
	"slices"
	"time"
)

// pulse is a timer that beats while something is in flight on a channel. Its beats
// are counted, and not the time: a process that was stopped for an hour has not
// waited for an hour.
type pulse struct {
	*time.Timer
	every    time.Duration
	late     int // after how many beats without an answer the channel is set aside
	patience int // how many beats another one has to take over then

	// The channel's lock guards what follows.
	beats   int
	beating bool
	aside   int  // the beat at which the channel was set aside, or 0
	left    bool // another one has taken over
}

const (
	// lateBeats is after how many beats an answer is late: in a third of the
	// ConfirmTimeout, so that who waits behind it is still in time, and in 10 s at
	// most, so that what RabbitMQ refuses after 65 s (see detours) was late.
	lateBeats = 40

	// lateOnDetour is the same on a detour, where nobody else waits behind it.
	// Copies must be able to wait there for longer than RabbitMQ lets their
	// originals be, which is half an hour: each channel set aside is a few more of
	// them in flight, and after maxAside they count as unconfirmed.
	lateOnDetour = 4 * 3 * lateBeats
)

func newPulse(c *conn, timeout time.Duration, late int) pulse {
	every := max(min(timeout, DefaultConfirmTimeout)/(3*lateBeats), time.Millisecond)
	return pulse{
		Timer: time.NewTimer(every), every: every, late: late, beating: true,
		// As long as it takes to notice that a connection is dead.
		patience: int(max(timeout, 2*c.Config.Heartbeat) / every),
	}
}

// begin returns the number of the beat, of which there will be more.
func (p *pulse) begin() int {
	if !p.beating {
		p.next()
	}
	return p.beats
}

func (p *pulse) next() {
	p.beating = true
	p.Reset(p.every)
}

// look, at every beat, sees to what is in flight for long.
//
// Answers that the AMQP client holds back are found out. It tells of them in the
// order of the tags: one message that gets none would have all that follow it count
// as unconfirmed.
//
// If the oldest is late the channel is set aside: it waits for what is in flight,
// while another one takes over, and the destination is led around (see detours). The
// broker handles a channel's messages in their order, so that it may be that one
// message that keeps it from going on. If it does not even let another channel take
// over, it does not read: then only another connection helps.
func (s *confirming) look() {
	blocked := s.conn.blocking() != nil // nobody's fault
	s.mu.Lock()
	var held []uint64
	var oldest uint64
	for tag, pub := range s.inFlight {
		switch {
		case pub.confirmation != nil && answered(pub.confirmation):
			held = append(held, tag)
		case oldest == 0 || tag < oldest:
			oldest = tag
		}
	}
	if s.ch.IsClosed() {
		s.mu.Unlock()
		return // then the AMQP client has all that is left count as refused: fail sees to it
	}
	if !blocked {
		s.pulse.beats++
	}
	p := &s.pulse
	first := s.inFlight[oldest]
	late := first != nil && p.aside == 0 && p.beats-first.beat >= p.late
	if late {
		p.aside = p.beats
	}
	deaf := p.aside > 0 && !p.left && p.beats-p.aside == p.patience && !blocked
	done := p.left && first == nil
	if p.beating = first != nil || p.aside > 0 && !p.left; p.beating {
		p.next()
	}
	s.mu.Unlock()

	s.condemnAll() // which came before the answers
	for _, tag := range held {
		s.answer(tag)
	}
	switch {
	case late:
		s.conn.log.Warn("confirms do not come", "exchange", first.exchange, "routing_key", first.key, "after", time.Duration(p.late)*p.every)
		s.detours.mark(first.destination())
		close(s.over)
	case deaf:
		s.conn.log.Warn("broker does not read", "after", time.Duration(p.patience)*p.every)
		s.wg.Go(func() { s.conn.end(0) })
	case done:
		s.wg.Go(func() { closeChannel(s.ch) })
	}
}

func answered(c confirmation) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// leave says that another channel has taken over, or none will. It is closed as
// soon as nothing is in flight on it.
func (s *confirming) leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulse.left = true
	s.pulse.next()
}

// end is the end of listen.
func (s *confirming) end() {
	s.pulse.Stop()
	close(s.dead)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulse.aside == 0 {
		close(s.over)
	}
}

func (s *confirming) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// maxAside bounds how many channels wait for late answers. Messages under keys that
// do not come twice, to a queue that does not confirm, would need ever more.
const maxAside = 16

// setAside keeps a channel for the answers that may still come.
func (p *publisher) setAside(s *confirming) {
	p.aside = slices.DeleteFunc(p.aside, (*confirming).isDead)
	if len(p.aside) == maxAside {
		oldest := p.aside[0]
		p.aside = slices.Delete(p.aside, 0, 1)
		p.link.wg.Go(func() { closeChannel(oldest.ch) })
	}
	p.aside = append(p.aside, s)
}
