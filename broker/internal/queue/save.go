package queue

import (
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// mustSave reports whether a message must survive the process: any message in a durable quorum queue, and a persistent
// message in a durable classic queue (https://www.rabbitmq.com/docs/queues#durability). Delayed messages survive like those of
// the plugin rabbitmq_delayed_message_exchange, which saved all of them.
func (q *Queue) mustSave(m *Message) bool {
	return q.config.Store != nil && q.config.Durable && (m.Persistent || q.config.Quorum || q.config.Delay != nil)
}

// save writes a message that has entered the queue to the store.
func (q *Queue) save(it *Item) {
	it.ref = q.config.Store.Put(q.entry(it))
	it.saved, q.stored = true, true
}

// entry returns the store entry of a message.
func (q *Queue) entry(it *Item) store.Entry {
	e := store.Entry{Key: q.key(it), Message: it.Message, State: store.State{
		Bytes: it.bytes, Deliveries: it.deliveries, Acquired: it.acquired, Redelivered: it.Redelivered, Transient: !q.mustSave(it.Message),
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

// key returns the key of a message in the store. It consists of the queue, the priority and the order of the message.
// Messages that wait until they are due have a separate level instead of a priority.
func (q *Queue) key(it *Item) store.Key {
	level := it.priority
	if !it.due.IsZero() {
		level = quorumDelayed
	}
	return store.Key{Queue: q.config.ID, Level: level, Order: it.order}
}

// update saves the new position and the new delivery counts of a message, if the message is in the store. The
// argument from is the previous key.
func (q *Queue) update(it *Item, from store.Key) {
	switch to := q.entry(it); {
	case !it.saved:
	case to.Key == from:
		it.ref = q.config.Store.Update(to, it.ref)
	default:
		it.ref = q.config.Store.Move(from, it.ref, to)
	}
}

// deleteSaved deletes from the store a message that has left the queue.
func (q *Queue) deleteSaved(it *Item) {
	if it.saved && !q.deleted {
		q.config.Store.Delete(q.key(it), it.ref, it.bytes)
		it.saved = false
	}
}

// deleteSavedReady deletes from the store all ready messages.
func (q *Queue) deleteSavedReady() {
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		for _, it := range l.returned {
			q.deleteSaved(it)
		}
		for it := range l.fresh.all() {
			q.deleteSaved(it)
		}
		if l.disk.n > 0 {
			before := q.order + 1
			if it := l.tail.head(); it != nil {
				before = it.order
			}
			q.config.Store.DeleteRange(q.config.ID, uint8(p), l.disk.after, before, l.disk.n, l.disk.bytes)
		}
		for it := range l.tail.all() {
			q.deleteSaved(it)
		}
	}
}

// deleteSavedAll deletes from the store all messages and notes of the queue.
func (q *Queue) deleteSavedAll() {
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

// restored returns the item for a message that was read from the store.
func (q *Queue) restored(l store.Loaded) (*Item, error) {
	m, err := decodeMessage(l.Message)
	if err != nil {
		return nil, err
	}
	it := &Item{
		Message: m, order: l.Order, priority: l.Level, bytes: l.Bytes,
		deliveries: l.Deliveries, acquired: l.Acquired, Redelivered: l.Redelivered,
		saved: true,
	}
	if q.config.Quorum && it.acquired == 0 && it.deliveries > 0 {
		it.acquired, it.presumed = it.deliveries, true
	}
	if l.Deadline != 0 {
		it.deadline = time.Unix(0, l.Deadline)
	}
	if l.Due != 0 {
		it.due, it.priority = time.Unix(0, l.Due), quorumReturned
	}
	if l.Order <= q.suspect {
		it.Redelivered, m.suspect = true, true
		if it.deliveries == 0 {
			it.acquired = 0 // otherwise, the earlier deliveries would count as successful
		}
	}
	if l.Order <= q.died && q.mayHaveDied(it) {
		m.suspect = true
	}
	return it, nil
}
