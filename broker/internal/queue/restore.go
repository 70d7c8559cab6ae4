package queue

import (
	"container/heap"
	"context"
	"math"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// Restore returns a queue with the messages that the store has of it. What has expired meanwhile is given up.
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

// restore begins a level with what is on disk.
func (r *ready) restore(l store.Level) {
	r.level(l.Level).disk = segment{n: l.Messages, bytes: l.Bytes}
	r.filled.set(int(l.Level))
	r.n += l.Messages
	r.bytes += l.Bytes
	r.onDisk += l.Messages
}

// restoreDelayed reads the messages that wait for a delayed retry, since they are wanted in another order than that in which
// they are stored.
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
		}
		n -= len(items)
	}
	return nil
}

// Close ends what the queue does by itself, and leaves everything in the store. It is called when nobody uses the queue any
// more, so that what was delivered is known again: it has come back, or is a dead letter that has not been sent.
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
		if !l.again { // else the store knows since it was stranded
			q.keepDelivered(l)
		}
	}
	if q.consumed.ticket != 0 && q.suspect == 0 {
		q.config.Store.DeleteDocument(consumedNote.document(q.config.ID))
	}
}

// consumed is the note in the store that messages of the queue may have been delivered. To write down each delivery before
// it is made would cost an fsync each time; instead, if the broker ends without a word, all messages of a queue with this
// note come again as redelivered. The note says then up to which order, and stays.
type consumed struct {
	ticket store.Ticket // zero: it has not been written
	kept   atomic.Bool
}

// Consumed tells that messages are going to be delivered. It waits for the disk the first time.
func (q *Queue) Consumed(ctx context.Context) error {
	if q.config.Store == nil || !q.config.Durable || q.consumed.kept.Load() {
		return nil
	}
	ticket := q.noteConsumed()
	if err := q.config.Store.Wait(ctx, ticket); err != nil {
		return err
	}
	q.consumed.kept.Store(true)
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
	if q.suspect, there, err = q.recall(consumedNote, false); there {
		q.consumed.ticket = 1 // has long succeeded
		q.consumed.kept.Store(true)
	}
	return err
}
