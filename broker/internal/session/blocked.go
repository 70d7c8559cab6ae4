package session

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// mayBlock reports whether the client has started to publish a message while an alarm is raised or the store has a
// backlog. If so, the session calls [Session.block] before it reads the rest of the message.
func (s *Session) mayBlock() bool {
	s.contentBegun = s.contentBegun && (s.config.Alarms.Raised() != nil || s.backlog() != nil)
	return s.contentBegun || s.behind != nil
}

// maxAhead is the size in bytes of the transient messages that a connection may publish while queues load messages for their
// consumers. A message counts at least minAhead. A load reads at most 1,024 messages and 256 KiB; the limit is a quarter of it, so that
// the consumers catch up.
const maxAhead, minAhead = 64 << 10, 256

// pace makes the connection wait if it has published many transient messages of the given size to queues that load messages.
func (s *Session) pace(queues []*vhost.Queue, size int) {
	for _, q := range queues {
		loaded := q.Loading()
		if loaded == nil {
			continue
		}
		if s.ahead += max(size, minAhead); s.ahead >= maxAhead {
			s.ahead, s.behind = 0, loaded
		}
	}
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

// pause blocks a publishing connection until the store has no backlog or a queue has loaded messages. It does not notify the
// client, because the wait is short. It also ends when an alarm is raised.
func (s *Session) pause(done <-chan struct{}) {
	if done == nil {
		return
	}
	s.confirms.flush()
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	look := time.NewTicker(alarmInterval)
	defer look.Stop()
	for s.config.Alarms.Raised() == nil {
		select {
		case <-done:
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
	s.pause(s.behind)
	s.behind = nil
	if !s.contentBegun {
		return nil
	}
	s.contentBegun = false
	s.pause(s.backlog())
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
