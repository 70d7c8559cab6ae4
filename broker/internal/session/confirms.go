package session

import (
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// confirms sees to it that publishers are told of their messages, in order on each channel, and of none that is to be kept
// before it is on disk.
//
// Several are told at once. Of those that need not be kept the reader tells when it has nothing else to do, of the others
// the goroutine that has just committed them. That one must never wait for the reader, which for its part may be waiting
// for a commit: hence a lock of their own.
type confirms struct {
	store store.Store // nil: nothing is kept
	out   *outbox

	mu        sync.Mutex
	committed store.Ticket // all commits up to this one have succeeded
	asked     store.Ticket // the last one that the store has been asked to tell of
	held      int          // messages since the client was last told of any
	channels  []*channel   // those with messages that the client does not know of
}

// add notes the next message of a channel, and which commit keeps it. The client is told of one that was not accepted
// without waiting for that: another queue may have it.
func (c *confirms) add(ch *channel, accepted bool, kept store.Ticket) {
	if !accepted {
		kept = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ch.unconfirmed.runs) == 0 {
		c.channels = append(c.channels, ch)
	}
	ch.unconfirmed.add(accepted, kept)
	if kept > c.asked {
		c.asked = c.store.Notify(c)
	}
	if c.held++; c.held >= confirmEvery {
		c.tell()
	}
}

// Committed implements [store.Waiter].
func (c *confirms) Committed(upTo store.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = max(c.committed, upTo)
	c.tell()
}

// flush tells whatever can be told.
func (c *confirms) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

func (c *confirms) tell() {
	c.held = 0
	if !slices.ContainsFunc(c.channels, func(ch *channel) bool { return len(ch.unconfirmed.due(c.committed)) > 0 }) {
		return
	}
	c.out.write(func(b []byte) []byte {
		for _, ch := range c.channels {
			b = ch.appendConfirms(b, c.committed)
		}
		return b
	})
	c.channels = slices.DeleteFunc(c.channels, func(ch *channel) bool { return len(ch.unconfirmed.runs) == 0 })
}

// last is the commit after which the client can be told of everything on some channels.
func (c *confirms) last(channels []*channel) (last store.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range channels {
		last = max(last, ch.unconfirmed.last())
	}
	return last
}

// forget is for a channel that has ended: nothing more is told of its messages.
func (c *confirms) forget(ch *channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.unconfirmed.runs = nil
	c.channels = slices.DeleteFunc(c.channels, func(other *channel) bool { return other == ch })
}

// pending is how many messages of a channel its client has not been told of.
func (c *confirms) pending(ch *channel) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ch.unconfirmed.published - ch.unconfirmed.told
}
