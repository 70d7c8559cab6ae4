package reprise

import (
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
)

// overdue says when deliveries are looked at that the broker may lose patience
// with.
type overdue struct {
	every, after time.Duration
}

func (c WorkerConfig) overdue() overdue {
	if c.ConsumerTimeout < 0 {
		return overdue{every: DefaultConsumerTimeout / 20, after: math.MaxInt64}
	}
	return overdue{every: c.ConsumerTimeout / 20, after: c.ConsumerTimeout / 5 * 4}
}

// remind warns of handlers that the broker is about to lose patience with, and
// gives back what has waited so long to begin: when its patience ends it closes
// the channel, and all that was delivered on it is delivered again.
func (s *session) remind(now time.Time, after time.Duration) {
	w := s.worker
	for i := range w.slots.running {
		d := w.slots.running[i].Load()
		if d == nil || d.session != s || d.reminded || now.Sub(d.arrived) < after {
			continue
		}
		d.reminded = true
		held := now.Sub(d.arrived)
		w.log.Warn("consumer timeout is near", "message_id", d.MessageID, "attempt", d.attempt,
			"held", held, "timeout", w.cfg.ConsumerTimeout)
		w.observe(Event{Kind: EventTimeoutNear, MessageID: d.MessageID, Attempt: d.attempt, Took: held})
	}
	n := 0
	for n < len(s.pending) && now.Sub(s.pending[n].arrived) >= after {
		s.acks.Settle(s.pending[n].Tag, ack.GiveBack)
		n++
	}
	if n > 0 {
		w.log.Warn("waited too long to begin", "given_back", n, "timeout", w.cfg.ConsumerTimeout)
		s.pending = s.pending[n:]
	}
}
