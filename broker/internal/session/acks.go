package session

import "github.com/reprisemq/reprise/internal/amqpwire"

// acks holds the acks that the session has read but not yet processed. Clients usually send one ack for each message. The
// session combines consecutive acks into one call to the queue.
type acks struct {
	list  []receivedAck
	taken []delivery // reusable buffer for the settled deliveries
}

// receivedAck is an ack and its channel.
type receivedAck struct {
	ch       *channel
	tag      uint64
	multiple bool
}

// ack stores an ack for processAcks. On a transactional channel, it adds the settlement to the transaction instead.
func (ch *channel) ack(m *amqpwire.BasicAck) error {
	if ch.tx != nil {
		return ch.settle(m.DeliveryTag, m.Multiple, ack)
	}
	ch.s.acks.list = append(ch.s.acks.list, receivedAck{ch, m.DeliveryTag, m.Multiple})
	return nil
}

// isAck reports whether a frame is an ack. The session calls processAcks before it handles any other frame.
func isAck(f amqpwire.Frame) bool {
	id, err := amqpwire.PeekMethodID(f.Payload)
	return f.Type == amqpwire.FrameMethod && err == nil && id == amqpwire.IDBasicAck
}

// processAcks processes the stored acks. The session calls it before it handles an error or a frame other than an ack.
func (s *Session) processAcks() {
	all := s.acks.list
	s.acks.list = nil // because raise calls processAcks again
	for rest := all; len(rest) > 0; {
		ch, n := rest[0].ch, 1
		for n < len(rest) && rest[n].ch == ch {
			n++
		}
		if err := ch.settleAcks(rest[:n]); err != nil {
			s.raise(ch.id, amqpwire.IDBasicAck, err)
		}
		rest = rest[n:]
	}
	s.acks.list = all[:0]
}

// settleAcks settles the acked deliveries of a channel, up to the first error.
func (ch *channel) settleAcks(acks []receivedAck) (err error) {
	if ch.closing {
		return nil // channel closed by an earlier error
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
