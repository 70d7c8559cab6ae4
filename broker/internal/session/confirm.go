package session

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// unconfirmed is what a channel has published and its client has not been told of. But for on, which is the reader's own,
// it is guarded by the lock of [confirms].
type unconfirmed struct {
	on        bool
	published uint64 // the tag of the last message
	told      uint64 // up to this tag the client knows
	runs      []run  // what is in between, in order
}

// run is messages in a row of which the client is told in the same way at the same time.
type run struct {
	upTo     uint64       // the tag of the last one
	kept     store.Ticket // the commit after which they, and all before them, are safe
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

// last is the commit after which the client can be told of everything.
func (u *unconfirmed) last() store.Ticket {
	if len(u.runs) == 0 {
		return 0
	}
	return u.runs[len(u.runs)-1].kept
}

// add notes the next message. Its turn comes after those before it: none is safe earlier than they are.
func (u *unconfirmed) add(accepted bool, kept store.Ticket) {
	u.published++
	r := run{upTo: u.published, kept: max(kept, u.last()), accepted: accepted}
	if i := len(u.runs) - 1; i >= 0 && u.runs[i].kept == r.kept && u.runs[i].accepted == accepted {
		u.runs[i] = r
		return
	}
	u.runs = append(u.runs, r)
}

// due are the runs that can be told after a commit.
func (u *unconfirmed) due(committed store.Ticket) []run {
	n := 0
	for n < len(u.runs) && u.runs[n].kept <= committed {
		n++
	}
	return u.runs[:n]
}

// appendConfirms encodes what can be told after a commit: acks in a row in one frame, each nack by itself, since there are
// clients that do not understand several in one.
func (ch *channel) appendConfirms(b []byte, committed store.Ticket) []byte {
	u := &ch.unconfirmed
	due := u.due(committed)
	for i, r := range due {
		switch {
		case !r.accepted:
			for u.told < r.upTo {
				u.told++
				b = ch.s.appendMethod(b, ch.id, &amqpwire.BasicNack{DeliveryTag: u.told})
			}
		case i+1 < len(due) && due[i+1].accepted: // one frame tells both
		default:
			n := r.upTo - u.told
			b = ch.s.appendMethod(b, ch.id, &amqpwire.BasicAck{DeliveryTag: r.upTo, Multiple: n > 1})
			ch.counter.Add(stats.Confirm, n)
			u.told = r.upTo
		}
	}
	u.runs = slices.Delete(u.runs, 0, len(due))
	return b
}
