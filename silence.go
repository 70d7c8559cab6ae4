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
	patience int // how many beats another channel has to take over from one that is set aside

	// The channel's lock guards what follows.
	beats   int
	beating bool
	busy    int  // the last beat at which something was in flight
	aside   int  // the beat at which the channel was set aside, or 0
	left    bool // another one has taken over, or none will
	closing int  // the beat at which it began to be closed, or 0
}

// lateBeats is after how many beats an answer is late: in a third of the
// ConfirmTimeout, so that who waits behind it is still in time, and in 10 s at
// most, so that what RabbitMQ refuses after 65 s (see detours) was late.
const lateBeats = 40

// For how long answers are waited for where nothing else depends on it.
const (
	// unawaitedFor is for how long where nobody waits for them any more: they would
	// only tell that the destination confirms again.
	unawaitedFor = 5 * time.Minute

	// awaitedFor is for how long where somebody does: for longer than RabbitMQ lets
	// the original of a copy be unacknowledged, which is half an hour.
	awaitedFor = 40 * time.Minute
)

func newPulse(c *conn, timeout time.Duration) pulse {
	every := max(min(timeout, DefaultConfirmTimeout)/(3*lateBeats), time.Millisecond)
	return pulse{
		Timer: time.NewTimer(every), every: every, beating: true,
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
// The destination of a message that becomes late is led around from then on (see
// detours), and the channel is set aside: it waits for what is in flight, while
// another one takes over. The broker handles a channel's messages in their order, so
// that it may be that one message that keeps it from going on. If it does not even
// let another channel take over, or this one be closed, it does not read: then only
// another connection helps. (It is closed behind up to 16 messages, each of which RabbitMQ
// may keep for 65 s.)
//
// A channel that was set aside is closed when there is nothing left to wait for on it.
// That of a detour is not set aside before, since nobody else waits behind it; but then
// it is, so that others may have it.
func (s *confirming) look() {
	blocked := s.conn.blocking() != nil // nobody's fault
	s.mu.Lock()
	p := &s.pulse
	if !blocked {
		p.beats++
	}
	var held, late []uint64
	age, awaited := 0, false
	for tag, pub := range s.inFlight {
		if pub.confirmation != nil && answered(pub.confirmation) {
			held = append(held, tag)
			continue
		}
		age = max(age, p.beats-pub.beat)
		awaited = awaited || pub.state.Load() == written
		if !blocked && p.beats-pub.beat == lateBeats {
			late = append(late, tag)
			s.detours.mark(pub)
		}
	}
	if s.ch.IsClosed() { // asked afterwards: then the AMQP client has all that is left count as refused
		s.mu.Unlock()
		return // fail sees to it
	}
	waiting := len(s.inFlight) > len(held)
	var cause *publication
	if len(late) > 0 && !s.onDetour {
		cause = s.inFlight[slices.Min(late)]
	}
	enough := unawaitedFor
	if awaited {
		enough = awaitedFor
	}
	hopeless := age > int(enough/p.every)
	if waiting {
		p.busy = p.beats
	}
	idle := s.onDetour && p.beats-p.busy > lateBeats
	aside := p.aside == 0 && (cause != nil || hopeless || idle)
	if aside {
		p.aside = p.beats
	}
	deaf := !blocked && (p.aside > 0 && !p.left && p.beats-p.aside == p.patience ||
		p.closing > 0 && p.beats-p.closing == int(awaitedFor/p.every))
	done := p.left && p.closing == 0 && (!waiting || hopeless)
	if done {
		p.closing = max(p.beats, 1)
	}
	if p.beating = waiting || p.aside > 0 && !p.left || p.closing > 0 || p.aside == 0 && s.onDetour; p.beating {
		p.next()
	}
	s.mu.Unlock()

	s.condemnAll() // which came before the answers
	for _, tag := range held {
		s.answer(tag)
	}
	if aside && cause != nil {
		s.conn.log.Warn("confirms do not come", "exchange", cause.exchange, "routing_key", cause.key, "after", lateBeats*p.every)
	}
	if aside {
		close(s.over)
	}
	if deaf {
		s.conn.log.Warn("broker does not read", "after", time.Duration(p.beats-p.aside)*p.every)
		s.wg.Go(func() { s.conn.end(0) })
	}
	if done {
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
// soon as there is nothing to wait for on it.
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
