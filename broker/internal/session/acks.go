package session

import "github.com/reprisemq/reprise/internal/amqpwire"

// acks are the acks that have been read and not been heeded. They mostly come in great numbers, one for each message:
// together they cost the queue no more than one would.
type acks struct {
	list  []received
	taken []delivery // room for what they settle, to be used again
}

// received is an ack and the channel that it came on.
type received struct {
	ch       *channel
	tag      uint64
	multiple bool
}

// ack notes an ack, or heeds it if the channel is transactional.
func (ch *channel) ack(m *amqpwire.BasicAck) error {
	if ch.tx != nil {
		return ch.settle(m.DeliveryTag, m.Multiple, ack)
	}
	ch.s.acks.list = append(ch.s.acks.list, received{ch, m.DeliveryTag, m.Multiple})
	return nil
}

// isAck reports whether a frame may be handled while acks have not been heeded.
func isAck(f amqpwire.Frame) bool {
	id, err := amqpwire.PeekMethodID(f.Payload)
	return f.Type == amqpwire.FrameMethod && err == nil && id == amqpwire.IDBasicAck
}

// heedAcks settles what was acked. It is called before anything else happens.
func (s *Session) heedAcks() {
	all := s.acks.list
	s.acks.list = nil // an error here leads to here again
	for rest := all; len(rest) > 0; {
		ch, n := rest[0].ch, 1
		for n < len(rest) && rest[n].ch == ch {
			n++
		}
		if err := ch.heed(rest[:n]); err != nil {
			s.raise(ch.id, amqpwire.IDBasicAck, err)
		}
		rest = rest[n:]
	}
	s.acks.list = all[:0]
}

// heed settles what was acked on a channel, up to the first mistake.
func (ch *channel) heed(acks []received) (err error) {
	if ch.closing {
		return nil // since such a mistake
	}
	taken := ch.s.acks.taken[:0]
	ch.mu.Lock()
	for i := 0; i < len(acks) && err == nil; i++ {
		taken, err = ch.take(taken, acks[i].tag, acks[i].multiple)
	}
	ch.mu.Unlock()
	ch.finish(settlement{taken, ack})
	clear(taken)
	if cap(taken) > unackedKeep {
		taken = nil
	}
	ch.s.acks.taken = taken
	return err
}
