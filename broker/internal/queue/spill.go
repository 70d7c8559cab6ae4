package queue

import "github.com/reprisemq/reprise/broker/internal/store"

// roomFor is how many messages a level may have in memory however little of it there is, and roomBytes how large they may
// be, but for the last of them.
const (
	roomFor   = 64
	roomBytes = 256 << 10
)

// segment is the messages of a level that are on disk only.
type segment struct {
	n       int
	bytes   int64
	after   uint64 // an order: they come after it
	chunk   int    // how many the last load was to bring, or has brought if that was less
	full    bool   // it was not less
	loading bool
	err     error  // why the last load failed
	load    uint64 // which one it is: another one began if the queue was purged meanwhile
}

// enter adds a message to those that are ready, and to the store if it has to be there.
func (q *Queue) enter(it *Item) {
	if q.spills(it) {
		q.keep(it)
		q.ready.pushTail(it)
		q.awaitDisk()
		return
	}
	if q.keeps(it.Message) {
		q.keep(it)
	}
	q.ready.push(it)
}

// spills reports whether there is no room in memory for a message, or there was none for the one before it.
func (q *Queue) spills(it *Item) bool {
	if q.config.Store == nil {
		return false
	}
	l := q.ready.level(it.priority)
	full := l.fresh.len() >= roomFor || l.fresh.size >= roomBytes
	return l.spilled() || full && q.config.Meter.Used() > q.config.Resident
}

// awaitDisk has [Queue.Committed] called when the messages in the tails are on disk.
func (q *Queue) awaitDisk() {
	if !q.awaiting {
		q.awaiting = true
		q.config.Store.Notify(q)
	}
}

// Committed implements [store.Waiter]: it lets go of messages that are on disk now.
func (q *Queue) Committed(upTo store.Ticket) {
	q.mu.Lock()
	defer q.unlock()
	q.awaiting = false
	if q.deleted {
		return
	}
	left := false
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		for it := l.tail.head(); it != nil && it.ref.Ticket <= upTo; it = l.tail.head() {
			q.ready.spill(l)
			q.config.Meter.Add(-it.Message.Size())
		}
		left = left || l.tail.len() > 0
	}
	if q.unload(upTo) || left {
		q.awaitDisk()
	}
}
