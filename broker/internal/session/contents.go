package session

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
)

// contentTimeout is how long a client may leave a message that it has begun to publish without a further part.
const contentTimeout = time.Minute

// contentLooks is how many looks there are within contentTimeout. A message that has not changed between more looks than that
// has not for at least contentTimeout.
const contentLooks = 4

// contents looks at the messages that a client has begun to publish. Most are complete a moment later, and need no timer of
// their own.
type contents struct {
	// Guarded as the channels are:
	looks   uint64 // so far
	running bool   // the timer

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// begin makes sure that somebody looks at a message that has just been begun.
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
		c.timer = time.AfterFunc(contentTimeout/contentLooks, s.lookAtContents)
	default:
		c.timer.Reset(contentTimeout / contentLooks)
	}
}

// stop ends that, at the end of the session.
func (c *contents) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.timer != nil {
		c.timer.Stop()
	}
}

// lookAtContents closes the connection if its client has begun a message and does not go on. A look counts only while the
// client is read: not while something has run short, or the client does not read its answers, or the reader waits for the
// disk. That one keeps its turn, which is not waited for.
func (s *Session) lookAtContents() {
	c := &s.contents
	if s.isHeld() || s.out.full.Load() || !s.turn.TryLock() {
		c.start(s)
		return
	}
	s.mu.Lock()
	defer s.unlock()
	c.looks++
	begun := false
	for _, ch := range s.channels {
		if !ch.content.expected() {
			continue
		}
		begun = true
		if c.looks-ch.content.look > contentLooks {
			s.fail(exception.New(exception.ResourceError,
				"message on channel %d is incomplete, and no part of it has come for %v", ch.id, contentTimeout), 0)
			return
		}
	}
	if c.running = begun; begun {
		c.start(s)
	}
}
