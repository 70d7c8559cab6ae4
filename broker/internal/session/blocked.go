package session

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// mayBlock reports whether a message has just been begun of which nothing is to be read before [Session.block] has let it
// pass.
func (s *Session) mayBlock() bool {
	s.begun = s.begun && (s.config.Alarms.Raised() != nil || s.backlog() != nil)
	return s.begun
}

func (s *Session) backlog() <-chan struct{} {
	if s.config.Store == nil {
		return nil
	}
	return s.config.Store.Backlog()
}

// alarmInterval is how often a session that waits for a commit looks for an alarm: that of a disk that hangs, of which its
// client has to be told.
const alarmInterval = 100 * time.Millisecond

// awaitCommit keeps a connection that publishes waiting while the store has a backlog. Its client is not told: that is over
// with the running commit, or an alarm is raised.
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

// block keeps a connection that publishes waiting while something has run short: it is not read, so that the client cannot
// go on. Connections that only consume, and so help, are left alone
// (https://www.rabbitmq.com/docs/connection-blocked).
func (s *Session) block() error {
	if !s.begun {
		return nil
	}
	s.begun = false
	s.awaitCommit()
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
