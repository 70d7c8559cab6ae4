package queue

import "github.com/reprisemq/reprise/broker/internal/store"

// roomFor and roomBytes are the number and the total size of messages that a level may keep in memory even if memory is
// low. The last of these messages may exceed the size.
const (
	roomFor   = 64
	roomBytes = 256 << 10
)

// segment describes the messages of a level that are only on disk.
type segment struct {
	n       int
	bytes   int64
	after   uint64 // all messages in the segment have a higher order
	chunk   int    // number of messages that the last load requested or, if that is less, returned
	full    bool   // the last load returned the requested number of messages
	loading bool
	err     error  // error of the last load
	load    uint64 // number of the last load; if it differs after a load, the queue was purged
}

// enter adds a message to the ready messages and, if necessary, to the store.
func (q *Queue) enter(it *Item) {
	if q.spills(it) {
		q.save(it)
		q.ready.pushTail(it)
		q.awaitDisk()
		return
	}
	if q.mustSave(it.Message) {
		q.save(it)
	}
	q.ready.push(it)
}

// unread is the factor by which saved messages without a consumer count more than others.
const unread = 16

// spills reports whether a new message must be evicted to disk, because messages before it are on disk, or because the
// messages of the queue use more memory than all queues leave free. So no queue can take the memory of the others. Saved
// messages of a queue without consumers leave the memory first, because it costs little to evict them.
func (q *Queue) spills(it *Item) bool {
	if q.config.Store == nil {
		return false
	}
	l := q.ready.level(it.priority)
	if l.spilled() {
		return true
	}
	if l.fresh.len() < roomFor && l.fresh.size < roomBytes {
		return false
	}
	used := q.ready.size + q.held
	if q.consumers.len() == 0 && q.mustSave(it.Message) {
		used *= unread
	}
	return used > q.config.Resident-q.config.Meter.Used()
}

// awaitDisk requests a call to [Queue.Committed] after the next commit.
func (q *Queue) awaitDisk() {
	if !q.awaiting {
		q.awaiting = true
		q.config.Store.Notify(q)
	}
}

// Committed implements [store.Waiter]. It evicts from memory the messages in tails, the waiting messages and the
// stranded letters that are now on disk.
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
	left = q.spillWaiting(upTo) || left
	if q.unload(upTo) || left {
		q.awaitDisk()
	}
}
