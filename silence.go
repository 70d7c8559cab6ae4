package reprise

import (
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
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

func newPulse(c *amqpconn.Conn, timeout time.Duration) pulse {
	every := max(min(timeout, DefaultConfirmTimeout)/(3*lateBeats), time.Millisecond)
	return pulse{
		Timer: time.NewTimer(every), every: every, beating: true,
		patience: int(c.Timeout() / every),
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
	blocked := s.conn.Blocked() != nil // nobody's fault
	s.mu.Lock()
	if !blocked {
		s.pulse.beats++
	}
	v := s.survey(blocked)
	if s.ch.IsClosed() { // asked afterwards: then the AMQP client has all that is left count as refused
		s.mu.Unlock()
		return // fail sees to it
	}
	now := s.pulse.judge(v, s.onDetour, blocked)
	beats, aside := s.pulse.beats, s.pulse.aside
	s.mu.Unlock()

	s.condemnAll() // which came before the answers
	for _, tag := range v.held {
		s.answer(tag)
	}
	if now.aside {
		if v.late != nil && !s.onDetour {
			s.conn.Logger().Warn("confirms do not come", "exchange", v.late.exchange, "routing_key", v.late.key, "after", lateBeats*s.pulse.every)
		}
		close(s.over)
	}
	if now.deaf {
		s.wg.Go(func() { s.conn.GiveUp(time.Duration(beats-aside) * s.pulse.every) })
	}
	if now.done {
		s.wg.Go(func() { _ = s.ch.Close() }) // it is closed, whatever the error; these channels have a budget, and time
	}
}

// overview is what is in flight on a channel at a beat.
type overview struct {
	held    []uint64     // has an answer that the AMQP client has not told
	late    *publication // the first one that has become late
	waiting bool         // for answers
	awaited bool         // by somebody
	age     int          // of the oldest
}

// survey looks over what is in flight, and marks the destinations that are late.
func (s *confirming) survey(blocked bool) (v overview) {
	var first uint64
	for tag, pub := range s.inFlight {
		if pub.confirmation != nil && answered(pub.confirmation) {
			v.held = append(v.held, tag)
			continue
		}
		age := s.pulse.beats - pub.beat
		v.waiting, v.age = true, max(v.age, age)
		v.awaited = v.awaited || pub.state.Load() == written
		if blocked || age != lateBeats {
			continue
		}
		s.detours.mark(pub)
		if v.late == nil || tag < first {
			first, v.late = tag, pub
		}
	}
	return v
}

// steps are what is to be done with a channel at a beat.
type steps struct {
	aside bool // it is set aside
	deaf  bool // its connection is replaced
	done  bool // it is closed
}

// judge decides what is to be done, and whether there will be another beat.
func (p *pulse) judge(v overview, onDetour, blocked bool) (now steps) {
	enough := unawaitedFor
	if v.awaited {
		enough = awaitedFor
	}
	hopeless := v.age > int(enough/p.every)
	if v.waiting {
		p.busy = p.beats
	}
	if p.aside == 0 {
		idle := p.beats-p.busy > lateBeats
		now.aside = hopeless || v.late != nil && !onDetour || idle && onDetour
	}
	if now.aside {
		p.aside = p.beats
	}
	now.deaf = !blocked && (p.aside > 0 && !p.left && p.beats-p.aside == p.patience ||
		p.closing > 0 && p.beats-p.closing == int(awaitedFor/p.every))
	now.done = p.left && p.closing == 0 && (!v.waiting || hopeless)
	if now.done {
		p.closing = max(p.beats, 1)
	}
	p.beating = v.waiting || p.aside > 0 && !p.left || p.closing > 0 || p.aside == 0 && onDetour
	if p.beating {
		p.next()
	}
	return now
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
