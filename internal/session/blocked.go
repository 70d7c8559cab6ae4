package session

import "github.com/reprisemq/reprise/internal/amqpwire"

// block keeps a connection that publishes waiting while there is too much in memory: it is not read, so that the client
// cannot go on. Connections that only consume, and so help, are left alone
// (https://www.rabbitmq.com/docs/connection-blocked).
func (s *Session) block() error {
	clear := s.config.Memory.Alarm()
	if clear == nil {
		return nil
	}
	s.log.Warn("publishing is blocked: low on memory")
	if s.notifiesBlocked {
		s.send(0, &amqpwire.ConnectionBlocked{Reason: "low on memory"})
	}
	// What is not read cannot be told from silence.
	s.blocked.Store(true)
	defer s.blocked.Store(false)
	select {
	case <-clear:
	case <-s.ending:
		return nil
	case <-s.ctx.Done():
		return s.lost(s.ctx.Err())
	}
	s.log.Info("publishing is unblocked")
	if s.notifiesBlocked {
		s.send(0, &amqpwire.ConnectionUnblocked{})
	}
	return nil
}
