package session

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// unconfirmedMessages holds the published messages of a channel that the session has not yet confirmed. The lock of
// [confirms] guards all fields except on, which is guarded like Session.channels.
type unconfirmedMessages struct {
	on        bool
	published uint64 // tag of the last published message
	confirmed uint64 // tag of the last confirmed message
	runs      []run  // unconfirmed messages, in order
}

// run is a range of consecutive messages with the same result and commit.
type run struct {
	upTo     uint64       // tag of the last message
	commit   store.Ticket // commit that makes these and all earlier messages durable
	accepted bool
}

func (ch *channel) confirmSelect(m *amqpwire.ConfirmSelect) error {
	if ch.tx != nil {
		return exception.New(exception.PreconditionFailed, "cannot switch from tx to confirm mode")
	}
	ch.unconfirmed.on = true
	ch.reply(m.NoWait, &amqpwire.ConfirmSelectOk{})
	return nil
}

// last returns the commit after which the session can confirm all messages.
func (u *unconfirmedMessages) last() store.Ticket {
	if len(u.runs) == 0 {
		return 0
	}
	return u.runs[len(u.runs)-1].commit
}

// add adds the next message. The tickets of the runs never decrease.
func (u *unconfirmedMessages) add(accepted bool, kept store.Ticket) {
	u.published++
	r := run{upTo: u.published, commit: max(kept, u.last()), accepted: accepted}
	if i := len(u.runs) - 1; i >= 0 && u.runs[i].commit == r.commit && u.runs[i].accepted == accepted {
		u.runs[i] = r
		return
	}
	u.runs = append(u.runs, r)
}

// due returns the runs that the session can confirm after a commit.
func (u *unconfirmedMessages) due(committed store.Ticket) []run {
	n := 0
	for n < len(u.runs) && u.runs[n].commit <= committed {
		n++
	}
	return u.runs[:n]
}

// appendConfirms encodes the confirms that are due after a commit. It combines consecutive acks in one frame. It
// sends each nack separately, because some clients do not support the multiple flag of basic.nack.
func (ch *channel) appendConfirms(b []byte, committed store.Ticket) []byte {
	u := &ch.unconfirmed
	due := u.due(committed)
	for i, r := range due {
		switch {
		case !r.accepted:
			for u.confirmed < r.upTo {
				u.confirmed++
				b = ch.s.appendMethod(b, ch.id, &amqpwire.BasicNack{DeliveryTag: u.confirmed})
			}
		case i+1 < len(due) && due[i+1].accepted: // the ack of the next run also confirms this run
		default:
			n := r.upTo - u.confirmed
			b = ch.s.appendMethod(b, ch.id, &amqpwire.BasicAck{DeliveryTag: r.upTo, Multiple: n > 1})
			ch.counter.Add(stats.Confirm, n)
			u.confirmed = r.upTo
		}
	}
	u.runs = slices.Delete(u.runs, 0, len(due))
	return b
}
