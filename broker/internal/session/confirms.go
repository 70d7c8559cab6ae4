package session

import (
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// confirms sends publisher confirms, in order on each channel. If a message must be durable, the confirm follows the
// commit of the message.
//
// Consecutive acks share a frame. The reader confirms unsaved messages as soon as it has no other work, or after
// every confirmEvery messages. The committing goroutine confirms saved messages after their commit. That goroutine
// must never wait for the reader, which may itself wait for a commit, so confirms has a separate lock.
type confirms struct {
	store store.Store // nil: no messages are saved
	out   *outbox

	mu        sync.Mutex
	committed store.Ticket // all commits up to this ticket have succeeded
	requested store.Ticket // ticket of the last commit for which Notify was called
	collected int          // number of messages added since sendDue last ran
	channels  []*channel   // channels with unconfirmed messages
}

// add adds the next message of a channel and its commit. The nack of a refused message does not wait for the commit
// of the message, even if another queue has accepted it.
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
	if kept > c.requested {
		c.requested = c.store.Notify(c)
	}
	if c.collected++; c.collected >= confirmEvery {
		c.sendDue()
	}
}

// Committed implements [store.Waiter].
func (c *confirms) Committed(upTo store.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = max(c.committed, upTo)
	c.sendDue()
}

// flush sends all confirms that are due.
func (c *confirms) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendDue()
}

func (c *confirms) sendDue() {
	c.collected = 0
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

// last returns the commit after which the session can confirm all messages of the channels.
func (c *confirms) last(channels []*channel) (last store.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range channels {
		last = max(last, ch.unconfirmed.last())
	}
	return last
}

// remove removes a closed channel. The session sends no more confirms for its messages.
func (c *confirms) remove(ch *channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.unconfirmed.runs = nil
	c.channels = slices.DeleteFunc(c.channels, func(other *channel) bool { return other == ch })
}

// pending returns the number of unconfirmed messages of a channel.
func (c *confirms) pending(ch *channel) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ch.unconfirmed.published - ch.unconfirmed.confirmed
}
