package session

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// mayBlock reports whether the client has started to publish a message while an alarm is raised or the store has a
// backlog. If so, the session calls [Session.block] before it reads the rest of the message.
func (s *Session) mayBlock() bool {
	s.contentBegun = s.contentBegun && (s.config.Alarms.Raised() != nil || s.backlog() != nil)
	return s.contentBegun
}

func (s *Session) backlog() <-chan struct{} {
	if s.config.Store == nil {
		return nil
	}
	return s.config.Store.Backlog()
}

// alarmInterval is the interval at which a session checks for alarms while it waits for a commit. A disk that does not
// respond raises an alarm, and the session must then notify the client.
const alarmInterval = 100 * time.Millisecond

// awaitCommit blocks a publishing connection while the store has a backlog. It does not notify the client, because
// the wait is short. It ends when the next commit starts or an alarm is raised.
func (s *Session) awaitCommit() {
	begins := s.backlog()
	if begins == nil {
		return
	}
	s.confirms.flush()
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	look := time.NewTicker(alarmInterval)
	defer look.Stop()
	for s.config.Alarms.Raised() == nil {
		select {
		case <-begins:
			return
		case <-s.serving.Done():
			return
		case <-look.C:
		}
	}
}

// block stops reading from a publishing connection while an alarm is raised, so that the client cannot publish. It does not
// block connections that only consume, because consumption frees resources
// (https://www.rabbitmq.com/docs/connection-blocked).
func (s *Session) block() error {
	if !s.contentBegun {
		return nil
	}
	s.contentBegun = false
	s.awaitCommit()
	short := s.config.Alarms.Resources()
	if len(short) == 0 {
		return nil
	}
	// Otherwise the client would receive the confirms of earlier messages only together with the confirms of its next
	// messages.
	s.confirms.flush()
	reason := alarm.Reason(short)
	s.log.Warn("publishing is blocked: " + reason)
	if s.notifiesBlocked {
		s.send(0, &amqpwire.ConnectionBlocked{Reason: reason})
	}
	// While the session does not read, it cannot know whether the client is silent.
	s.blocked.Store(true)
	defer s.blocked.Store(false)
	// Another alarm may have been raised in the meantime.
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
