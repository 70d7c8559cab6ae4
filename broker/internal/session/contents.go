package session

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
)

// contentTimeout is the maximum time between two parts of a message.
const contentTimeout = time.Minute

// contentChecks is the number of checks per contentTimeout. If a message has not changed for more than contentChecks checks,
// it has not changed for at least contentTimeout.
const contentChecks = 4

// contents detects messages that a client has started to publish but does not complete. All channels of a session share one
// timer, because most messages are complete before the next check.
type contents struct {
	// Guarded like Session.channels:
	checks  uint64 // number of checks so far
	running bool   // the timer is running

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// begin starts the checks if they are not running.
func (c *contents) begin(s *Session) {
	if !c.running {
		c.running = true
		c.start(s)
	}
}

func (c *contents) start(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case c.timer == nil:
		c.timer = time.AfterFunc(contentTimeout/contentChecks, s.checkContents)
	default:
		c.timer.Reset(contentTimeout / contentChecks)
	}
}

// stop stops the checks when the session is closed.
func (c *contents) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.timer != nil {
		c.timer.Stop()
	}
}

// checkContents closes the connection if no part of an incomplete message has arrived for contentTimeout. A check
// counts only while the session reads from the client. The session does not read during an alarm, while the client
// does not read its replies, or while the reader waits for the disk. A waiting reader holds the turn, so checkContents
// uses TryLock for the turn.
func (s *Session) checkContents() {
	c := &s.contents
	if s.readsPaused() || s.out.full.Load() || !s.turn.TryLock() {
		c.start(s)
		return
	}
	s.mu.Lock()
	defer s.unlock()
	c.checks++
	begun := false
	for _, ch := range s.channels {
		if !ch.content.expected() {
			continue
		}
		begun = true
		if c.checks-ch.content.check > contentChecks {
			s.fail(exception.New(exception.ResourceError,
				"message on channel %d is incomplete, and no part of it has come for %v", ch.id, contentTimeout), 0)
			return
		}
	}
	if c.running = begun; begun {
		c.start(s)
	}
}
