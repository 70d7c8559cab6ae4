package session

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// awaitAck sets the timer to fire at the time due, unless it is already set to fire earlier. The caller must hold the
// lock of a channel.
func (s *Session) awaitAck(due time.Time) {
	s.ackTimer.Lock()
	defer s.ackTimer.Unlock()
	if !s.ackTimer.due.IsZero() && !due.Before(s.ackTimer.due) {
		return
	}
	s.ackTimer.due = due
	if s.ackTimer.timer == nil {
		s.ackTimer.timer = time.AfterFunc(time.Until(due), s.ackTimeouts)
		return
	}
	s.ackTimer.timer.Reset(time.Until(due))
}

func (s *Session) stopAckTimer() {
	s.ackTimer.Lock()
	defer s.ackTimer.Unlock()
	if s.ackTimer.timer != nil {
		s.ackTimer.timer.Stop()
	}
}

// ackTimeouts requeues the deliveries that have exceeded the acknowledgement timeout. It cancels their consumers if the
// client supports basic.cancel, and closes their channels otherwise
// (https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout).
func (s *Session) ackTimeouts() {
	s.lock()
	defer s.unlock()
	s.ackTimer.Lock()
	s.ackTimer.due = time.Time{}
	s.ackTimer.Unlock()

	now := time.Now()
	for _, ch := range s.channels {
		overdue, late, next := ch.overdue(now)
		if !next.IsZero() {
			s.awaitAck(next)
		}
		for c := range late {
			ch.timedOut(c)
		}
		ch.settleAll(settlement{overdue, nack(true, false)}) // only now, so that the cancelled consumers do not receive the messages again
	}
}

// requeuedItem replaces the item of a delivery that was requeued after its timeout.
var requeuedItem = new(queue.Item)

// overdue takes the deliveries that have exceeded the timeout. It also returns their consumers, and the earliest
// deadline of the other deliveries. If the client later settles a taken delivery, the settlement has no effect and
// causes no error.
func (ch *channel) overdue(now time.Time) (taken []delivery, late map[*consumer]struct{}, next time.Time) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	late = make(map[*consumer]struct{})
	for i := range ch.unacked.list {
		d := &ch.unacked.list[i]
		switch {
		case settled(*d) || d.released || d.due.IsZero():
		case !now.Before(d.due):
			taken = append(taken, *d)
			late[d.consumer] = struct{}{}
			d.consumer.settled()
			*d = delivery{tag: d.tag, item: requeuedItem, released: true}
		case next.IsZero() || d.due.Before(next):
			next = d.due
		}
	}
	return taken, late, next
}

func (ch *channel) timedOut(c *consumer) {
	ch.mu.Lock()
	there := ch.consumers[c.tag] == c
	ch.mu.Unlock()
	if !there {
		return // already cancelled
	}
	ch.s.log.Warn("consumer exceeded the acknowledgement timeout", "channel", ch.id, "consumer", c.tag, "queue", c.queue.Name(),
		"timeout", c.timeout)
	if !ch.s.notifiesCancel {
		ch.s.raise(ch.id, 0, exception.New(exception.PreconditionFailed,
			"delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more",
			ch.id, c.timeout.Milliseconds()))
		return
	}
	ch.forget(c)
	ch.cancelConsumer(c)
	ch.send(&amqpwire.BasicCancel{ConsumerTag: c.tag, NoWait: true})
}
