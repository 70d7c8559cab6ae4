package queue

import (
	"container/heap"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// wait adds a message to a queue with [Config.Delay]. If memory is low, only the item of the message stays in memory.
func (q *Queue) wait(m *Message) store.Ticket {
	it := q.item(m)
	it.due = q.config.Clock.Now().Add(q.config.Delay(m))
	q.config.Meter.Add(m.Size())
	spills := q.memoryLow()
	if spills || q.mustSave(m) {
		q.save(it)
	}
	q.delay(it)
	if spills {
		q.spilling = append(q.spilling, it)
		q.awaitDisk()
	}
	return it.ref.Ticket
}

func (q *Queue) memoryLow() bool {
	return q.config.Store != nil && q.config.Meter.Used() > q.config.Resident/unread
}

// spillWaiting evicts from memory the waiting messages that are on disk. It reports whether a message is not yet committed.
func (q *Queue) spillWaiting(committed store.Ticket) (left bool) {
	now := q.config.Clock.Now()
	for len(q.spilling) > 0 && q.spilling[0].ref.Ticket <= committed {
		if it := q.spilling[0]; it.due.After(now) { // otherwise it may already be a dead letter
			q.evict(it)
		}
		q.spilling = q.spilling[1:]
	}
	return len(q.spilling) > 0
}

// evict removes a waiting message from memory. The message must be on disk.
func (q *Queue) evict(it *Item) {
	q.config.Meter.Add(itemOverhead - it.Message.Size())
	it.Message, it.ref = nil, store.Ref{}
}

// size returns the memory use of a message, which may be evicted.
func (it *Item) size() int64 {
	if it.Message == nil {
		return itemOverhead
	}
	return it.Message.Size()
}

// releaseFirst makes the first message whose delay is over ready, or sends it if the queue has [Config.Delay].
func (q *Queue) releaseFirst() {
	it := heap.Pop(&q.delayed).(*Item)
	if q.config.Delay == nil {
		q.ready.requeue(it)
		return
	}
	l := deadLetter{message: it.Message, item: it, to: q.config.DeadLetter, at: it.due, bytes: it.bytes, size: it.size()}
	q.dead.next = append(q.dead.next, l)
	q.hold(l, 1)
}
