package session

import (
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// mayBlock reports whether a message has just been begun of which nothing is to be read before [Session.block] has let it
// pass.
func (s *Session) mayBlock() bool {
	s.begun = s.begun && s.config.Alarms.Raised() != nil
	return s.begun
}

// block keeps a connection that publishes waiting while something has run short: it is not read, so that the client cannot
// go on. Connections that only consume, and so help, are left alone
// (https://www.rabbitmq.com/docs/connection-blocked).
func (s *Session) block() error {
	if !s.begun {
		return nil
	}
	s.begun = false
	short := s.config.Alarms.Resources()
	if len(short) == 0 {
		return nil
	}
	// Of what it published before it would be told together with what it publishes next.
	s.confirms.flush()
	reason := alarm.Reason(short)
	s.log.Warn("publishing is blocked: " + reason)
	if s.notifiesBlocked {
		s.send(0, &amqpwire.ConnectionBlocked{Reason: reason})
	}
	// What is not read cannot be told from silence.
	s.blocked.Store(true)
	defer s.blocked.Store(false)
	// When one alarm is over, another may have been raised meanwhile.
	for over := s.config.Alarms.Raised(); over != nil; over = s.config.Alarms.Raised() {
		select {
		case <-over:
		case <-s.serving.Done():
			if s.ctx.Err() != nil {
				return s.lost(s.ctx.Err())
			}
			return nil
		}
	}
	s.log.Info("publishing is unblocked")
	if s.notifiesBlocked {
		s.send(0, &amqpwire.ConnectionUnblocked{})
	}
	return nil
}
