package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// keeps reports whether a message is to outlive the process: in a quorum queue any, in a classic one those that are
// persistent (https://www.rabbitmq.com/docs/queues#durability).
func (q *Queue) keeps(m *Message) bool {
	return q.config.Store != nil && q.config.Durable && (m.Persistent || q.config.Quorum)
}

// keep puts a message that has entered the queue into the store.
func (q *Queue) keep(it *Item) {
	it.ref = q.config.Store.Put(q.entry(it))
	it.kept, q.stored = true, true
}

// entry is what the store is to know of a message.
func (q *Queue) entry(it *Item) store.Entry {
	e := store.Entry{Key: q.key(it), Message: it.Message, State: store.State{
		Bytes: it.bytes, Deliveries: it.deliveries, Acquired: it.acquired, Redelivered: it.Redelivered, Transient: !q.keeps(it.Message),
	}}
	if it.presumed {
		e.Acquired = 0
	}
	if !it.deadline.IsZero() {
		e.Deadline = it.deadline.UnixNano()
	}
	if !it.due.IsZero() {
		e.Due = it.due.UnixNano()
	}
	return e
}

// key is the place of a message in the store: the one it has in the queue, but for those that wait for a delayed retry,
// which have a level of their own.
func (q *Queue) key(it *Item) store.Key {
	level := it.priority
	if !it.due.IsZero() {
		level = quorumDelayed
	}
	return store.Key{Queue: q.config.ID, Level: level, Order: it.order}
}

// update tells the store that a message was given back, and has another place or history since from.
func (q *Queue) update(it *Item, from store.Key) {
	switch to := q.entry(it); {
	case !it.kept:
	case to.Key == from:
		it.ref = q.config.Store.Update(to, it.ref)
	default:
		it.ref = q.config.Store.Move(from, it.ref, to)
	}
}

// unkeep removes a message from the store that has left the queue.
func (q *Queue) unkeep(it *Item) {
	if it.kept && !q.deleted {
		q.config.Store.Delete(q.key(it), it.ref, it.bytes)
		it.kept = false
	}
}

// unkeepReady removes all messages from the store that are ready.
func (q *Queue) unkeepReady() {
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		for _, it := range l.returned {
			q.unkeep(it)
		}
		for it := range l.fresh.all() {
			q.unkeep(it)
		}
		if l.disk.n > 0 {
			before := q.order + 1
			if it := l.tail.head(); it != nil {
				before = it.order
			}
			q.config.Store.DeleteRange(q.config.ID, uint8(p), l.disk.after, before, l.disk.n, l.disk.bytes)
		}
		for it := range l.tail.all() {
			q.unkeep(it)
		}
	}
}

// unkeepAll removes the queue from the store.
func (q *Queue) unkeepAll() {
	if q.stored {
		q.config.Store.DeleteQueue(q.config.ID)
	}
	if q.consumed.ticket != 0 {
		q.config.Store.DeleteDocument(consumedNote.document(q.config.ID))
	}
	if q.died != 0 {
		q.config.Store.DeleteDocument(diedNote.document(q.config.ID))
	}
}

// restored is a message as the store had it.
func (q *Queue) restored(l store.Loaded) (*Item, error) {
	m, err := decodeMessage(l.Message)
	if err != nil {
		return nil, err
	}
	it := &Item{
		Message: m, order: l.Order, priority: l.Level, bytes: l.Bytes,
		deliveries: l.Deliveries, acquired: l.Acquired, Redelivered: l.Redelivered,
		kept: true,
	}
	if q.config.Quorum && it.acquired == 0 && it.deliveries > 0 {
		it.acquired, it.presumed = it.deliveries, true
	}
	if l.Deadline != 0 {
		it.deadline = time.Unix(0, l.Deadline)
	}
	if l.Order <= q.suspect {
		it.Redelivered, m.suspect = true, true
		if it.deliveries == 0 {
			it.acquired = 0 // to say how often it was delivered would be to say that no delivery has failed
		}
	}
	if l.Order <= q.died && q.diesAlone(it) {
		m.suspect = true
	}
	if l.Due != 0 {
		it.due, it.priority = time.Unix(0, l.Due), quorumReturned
	}
	return it, nil
}
