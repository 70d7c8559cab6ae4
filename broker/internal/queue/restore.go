package queue

import (
	"container/heap"
	"context"
	"math"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// Restore returns a queue with the messages from its store. Messages that have expired since they were saved are
// dead-lettered when they reach the head.
func Restore(config Config) (*Queue, error) {
	q := New(config)
	if err := q.restore(); err != nil {
		q.stopTimers()
		return nil, err
	}
	q.mu.Lock()
	defer q.unlock()
	q.releaseDue()
	return q, nil
}

func (q *Queue) restore() error {
	levels, err := q.config.Store.Levels(q.config.ID)
	if err != nil {
		return err
	}
	q.stored = len(levels) > 0
	delayed := 0
	for _, l := range levels {
		q.order = max(q.order, l.Last)
		if l.Level == quorumDelayed {
			delayed = l.Messages
			continue
		}
		q.ready.restore(l)
	}
	if err := q.restoreConsumed(); err != nil {
		return err
	}
	if err := q.restoreDied(); err != nil {
		return err
	}
	return q.restoreDelayed(delayed)
}

// restore initializes a level from the number and the total size of its messages on disk.
func (r *ready) restore(l store.Level) {
	r.level(l.Level).disk = segment{n: l.Messages, bytes: l.Bytes}
	r.filled.set(int(l.Level))
	r.n += l.Messages
	r.bytes += l.Bytes
	r.onDisk += l.Messages
}

// restoreDelayed loads all messages that wait until they are due. It cannot load them in chunks, because their
// delivery order differs from their order in the store.
func (q *Queue) restoreDelayed(n int) error {
	for after := uint64(0); n > 0; {
		items, err := q.read(quorumDelayed, after, math.MaxUint64, min(n, chunkMax))
		if err != nil {
			return err
		}
		for _, it := range items {
			heap.Push(&q.delayed, it)
			q.config.Meter.Add(it.Message.Size())
			after = it.order
			if q.config.Delay != nil && q.memoryLow() {
				q.evict(it)
			}
		}
		n -= len(items)
	}
	return nil
}

// Close stops the timers and the loads of the queue. The messages stay in the store. Before the call, the caller must
// stop all clients of the queue, so that no messages are unacked.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.deleted || q.closed {
		return
	}
	q.closed = true
	q.stopTimers()
	q.arrived.Broadcast()
	for _, l := range q.dead.next {
		if !l.resent { // the method sent has already recorded stranded letters
			q.saveDelivered(l)
		}
	}
	if q.consumed.ticket != 0 && q.suspect == 0 {
		q.config.Store.DeleteDocument(consumedNote.document(q.config.ID))
	}
}

// consumedState is the state of consumedNote, which records that messages of the queue may have been delivered. The
// queue does not record each delivery, because each record would need an fsync. If the note exists after a crash, the
// queue marks all restored messages as redelivered, writes the highest order of these messages to the note, and keeps
// the note.
type consumedState struct {
	ticket    store.Ticket // ticket of the note; 0 if the note does not exist
	committed atomic.Bool
}

// Consumed records that a durable queue is about to deliver messages, and waits until the record is on disk. After a
// successful call, further calls return immediately.
func (q *Queue) Consumed(ctx context.Context) error {
	if q.config.Store == nil || !q.config.Durable || q.consumed.committed.Load() {
		return nil
	}
	ticket := q.noteConsumed()
	if err := q.config.Store.Wait(ctx, ticket); err != nil {
		return err
	}
	q.consumed.committed.Store(true)
	return nil
}

func (q *Queue) noteConsumed() store.Ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumed.ticket == 0 && !q.deleted && !q.closed {
		q.consumed.ticket = q.config.Store.SetDocument(consumedNote.document(q.config.ID), nil)
	}
	return q.consumed.ticket
}

func (q *Queue) restoreConsumed() (err error) {
	var there bool
	if q.suspect, _, there, err = q.recall(consumedNote, false); there {
		q.consumed.ticket = 1 // any committed ticket except 0
		q.consumed.committed.Store(true)
	}
	return err
}
