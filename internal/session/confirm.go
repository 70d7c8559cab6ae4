package session

import (
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/stats"
)

// confirms counts what a channel publishes, and gathers acks in a row to tell them in one frame.
type confirms struct {
	on        bool
	published uint64 // the tag of the last message
	told      uint64 // up to this tag the client knows
}

func (ch *channel) confirmSelect(m *amqpwire.ConfirmSelect) error {
	if ch.tx != nil {
		return exception.New(exception.PreconditionFailed, "cannot switch from tx to confirm mode")
	}
	ch.confirms.on = true
	ch.reply(m.NoWait, &amqpwire.ConfirmSelectOk{})
	return nil
}

// confirm settles the next message that was published.
func (ch *channel) confirm(accepted bool) {
	c := &ch.confirms
	if !accepted {
		// An ack with "multiple" must not cover it.
		ch.flushConfirms()
		c.published++
		c.told = c.published
		ch.send(&amqpwire.BasicNack{DeliveryTag: c.published})
		return
	}
	ch.counter.Add(stats.Confirm, 1)
	if c.published == c.told {
		ch.s.dirty = append(ch.s.dirty, ch)
	}
	c.published++
	if c.published-c.told >= confirmEvery {
		ch.flushConfirms()
	}
}

func (ch *channel) flushConfirms() {
	c := &ch.confirms
	if n := c.published - c.told; n > 0 {
		ch.send(&amqpwire.BasicAck{DeliveryTag: c.published, Multiple: n > 1})
		c.told = c.published
	}
}

// flushConfirms tells all channels' confirms that are held back.
func (s *Session) flushConfirms() {
	for _, ch := range s.dirty {
		if !ch.closing {
			ch.flushConfirms()
		}
	}
	s.dirty = s.dirty[:0]
}
