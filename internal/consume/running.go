package consume

import (
	"bytes"
	"hash/maphash"
	"slices"
	"time"
)

// If a handler runs longer than the acknowledgement timeout, the broker redelivers its message. If the same process handled
// the message again, a handler that hangs would occupy all slots in turn. The session therefore keeps such a redelivery
// unsettled, outside the prefetch, until the handler has returned or the redelivery is overdue. Another process cannot
// receive the message in the meantime.

var identitySeed = maphash.MakeSeed()

// Identity returns a hash of the content of the message. Some publishers use the same message ID for different messages.
func (d *Delivery) Identity() uint64 {
	var h maphash.Hash
	h.SetSeed(identitySeed)
	for _, s := range []string{d.MessageID, d.CorrelationID, d.Type, d.RoutingKey} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(d.Body)
	return h.Sum64()
}

// isRunning reports whether a handler of this consumer still processes an earlier, overdue delivery of the message. A
// delivery that is not overdue was interrupted by a lost connection. Its handler soon returns, and to wait for it would
// delay the message and change the order.
func (d *Delivery) isRunning(now time.Time) bool {
	if !d.Redelivered {
		return false
	}
	c := d.session.consumer
	for i := range c.slots.all {
		if c.slots.all[i].isHandling(d, now.Add(-c.deadline.after)) {
			return true
		}
	}
	return false
}

// isHandling reports whether the handler has processed an earlier delivery of the message, or a burst that contains it, since the
// given time or longer.
func (x *slot) isHandling(d *Delivery, since time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.handled == nil || x.handled.Began.After(since) {
		return false
	}
	return d.repeats(x.handled, x.body) || slices.ContainsFunc(x.handled.Burst, func(b *Delivery) bool { return d.repeats(b, b.Body) })
}

// repeats reports whether d has the content of an earlier delivery with the given body. Some publishers use the same message ID for
// different messages.
func (d *Delivery) repeats(earlier *Delivery, body []byte) bool {
	return earlier.MessageID == d.MessageID && earlier.CorrelationID == d.CorrelationID &&
		earlier.Type == d.Type && earlier.RoutingKey == d.RoutingKey && bytes.Equal(body, d.Body)
}

// holdRunning keeps a redelivery whose message a handler still processes. It returns false for other deliveries.
func (s *session) holdRunning(d *Delivery) bool {
	if !d.isRunning(time.Now()) {
		return false
	}
	d.Hold()
	s.repeated = append(s.repeated, d)
	s.consumer.Log.Error("message is still being handled", "message_id", d.MessageID)
	s.noteRepeated()
	return true
}

// checkRepeated starts the redeliveries whose handlers have returned, and requeues overdue redeliveries.
func (s *session) checkRepeated(now time.Time) {
	repeated := s.repeated
	s.repeated = nil
	for _, d := range repeated {
		switch {
		case now.Sub(d.arrived) >= s.consumer.deadline.after:
			d.Release()
			d.Requeue()
		case d.isRunning(now):
			s.repeated = append(s.repeated, d)
		default:
			d.Release()
			s.receive(d)
		}
	}
	if len(repeated) > 0 {
		s.noteRepeated()
	}
}

func (s *session) noteRepeated() {
	s.consumer.owner.Repeated(len(s.repeated))
}
