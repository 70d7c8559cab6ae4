package ingest

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/retry"
)

// Store is the part of Archive that an Ingest uses.
type Store interface {
	AddDelivered(ctx context.Context, arrivals []failed.Arrived) ([]failed.ID, error)
	MarkSettled(ctx context.Context, ids []failed.ID) error
	ClaimQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error)
	RenewQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error)
	ReleaseQueue(ctx context.Context, queue, owner string) error
}

// batcher collects messages that arrive one by one and stores them in batches. Each transaction stores all messages
// that arrived during the previous transaction, up to maxSize.
//
//	add ─► waiting ─► ingest ─► unacked ─► acked ─► settled ─► MarkSettled
//	                              └─ ack lost ─► redelivered
//
// The batcher preserves the order, but stores other messages before a message that the store refuses. If the connection
// fails, the broker redelivers a message while the first delivery may still wait in the batcher. The batcher stores the
// redelivery after the first delivery, so that the archive recognizes the redelivery. For the same reason, before it
// stores a batch with a redelivered message, the batcher waits until the result of every earlier ack is known, and then
// starts a new session (failed.Arrived.Session).
type batcher struct {
	store   Store
	maxSize int // maximum size of a batch
	log     *slog.Logger
	wake    background.Signal // signals that there may be new work

	mu      sync.Mutex
	waiting []*entry
	unacked map[*reprise.Delivery]failed.ID // stored, but the result of the ack is not known yet
	settled []failed.ID                     // acked, but not yet reported to the store

	name     string // unique name of this batcher, the prefix of its session names
	sessions int
	failures int // consecutive failures of the store

	onAttempt func(error) // if set, called with the result of each attempt to use the store, except refusals
}

// entry is a message that is not stored yet.
type entry struct {
	arrival   failed.Arrived
	message   *reprise.Delivery
	retryAt   time.Time     // time of the next attempt, if the store refused only this message; otherwise zero
	done      chan struct{} // closed when the message is stored
	abandoned bool          // the caller of add no longer waits for the message
}

// messageKey is a hash key of a message: equal messages have the same key, and different messages almost never do.
type messageKey struct {
	id   string
	body uint64
}

var keySeed = maphash.MakeSeed()

func (e *entry) key() messageKey {
	return messageKey{e.message.MessageID, maphash.Bytes(keySeed, e.message.Body)}
}

// refusedFor is the delay before the next attempt to store a refused message.
const refusedFor = time.Minute

func newBatcher(store Store, maxSize int, log *slog.Logger) *batcher {
	return &batcher{
		store: store, maxSize: maxSize, log: log, name: rand.Text(),
		wake: background.NewSignal(), unacked: map[*reprise.Delivery]failed.ID{},
	}
}

// start starts the batcher. The returned function stops it; after that, callers must not add messages.
func (b *batcher) start(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { b.run(running) })
	return func() {
		cancel()
		wg.Wait()
		last, cancel := context.WithTimeout(ctx, background.DrainTimeout)
		defer cancel()
		if _, err := b.reportSettled(last); err != nil {
			b.log.Warn("archive unavailable", "error", err, "next_try", time.Duration(0), "held", 0)
		}
	}
}

// add blocks until the message is stored, and then returns nil. If ctx is done first, it returns the cause.
func (b *batcher) add(ctx context.Context, m *reprise.Delivery, a failed.Arrived) error {
	e := &entry{arrival: a, message: m, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, e)
	b.mu.Unlock()
	b.wake.Send()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-e.done: // stored before this goroutine acquired the lock
		return nil
	default:
		e.abandoned = true
		return context.Cause(ctx)
	}
}

// acked records the result of the ack of a stored message.
func (b *batcher) acked(m *reprise.Delivery, err error) {
	b.mu.Lock()
	id, found := b.unacked[m]
	delete(b.unacked, m)
	if found && err == nil {
		b.settled = append(b.settled, id)
	}
	b.mu.Unlock()
	b.wake.Send()
}

// run stores messages until ctx is done.
func (b *batcher) run(ctx context.Context) {
	size := b.maxSize
	for ctx.Err() == nil {
		batch, next := b.next(size)
		if len(batch) == 0 {
			if reported, err := b.reportSettled(ctx); reported || err != nil {
				b.afterAttempt(ctx, err)
				continue
			}
			b.await(ctx, next)
			continue
		}
		err, refused := b.put(ctx, batch), false
		if err != nil && len(batch) == 1 {
			refused, err = b.putAfterOther(ctx, batch[0], err)
		}
		switch {
		case err == nil:
			size = min(2*size, b.maxSize)
		case refused:
			b.refuse(batch[0], err)
			size = b.maxSize
			continue
		default:
			size = max(1, len(batch)/2) // one of the messages may have caused the error
		}
		b.afterAttempt(ctx, err)
	}
}

// afterAttempt logs a failure of the store and waits before the next attempt. If err is nil after failures, it logs the
// recovery.
func (b *batcher) afterAttempt(ctx context.Context, err error) {
	b.mu.Lock()
	held := len(b.waiting)
	b.mu.Unlock()
	if b.onAttempt != nil && ctx.Err() == nil {
		b.onAttempt(err)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		b.failures++
		delay := background.StoreBackoff.Delay(b.failures)
		b.log.Warn("archive unavailable", "error", err, "next_try", delay, "held", held)
		_ = retry.Sleep(ctx, delay)
	case b.failures > 0:
		b.failures = 0
		b.log.Info("archive available", "held", held)
	}
}

// next returns the next batch: the oldest waiting messages, or one refused message that is due. If the batch is empty,
// next returns the earliest time at which a refused message is due, or the zero time if no refused message is waiting.
func (b *batcher) next(size int) (batch []*entry, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(e *entry) bool { return e.abandoned })
	now, seen := time.Now(), map[messageKey]bool{}
	for _, e := range b.waiting {
		switch {
		case e.retryAt.IsZero():
			if e.message.Redelivered && seen[e.key()] {
				return batch, time.Time{} // may be a redelivery of a message in this batch; recognized only in another session
			}
			seen[e.key()] = true
			if batch = append(batch, e); len(batch) == size {
				return batch, time.Time{}
			}
		case !e.retryAt.After(now) && batch == nil:
			return []*entry{e}, time.Time{} // alone, so that it does not cause others to be refused
		case again.IsZero() || e.retryAt.Before(again):
			again = e.retryAt
		}
	}
	return batch, again
}

// await blocks until there may be new work, ctx is done, or the time in again is reached. If again is the zero time,
// there is no time limit.
func (b *batcher) await(ctx context.Context, again time.Time) {
	var due <-chan time.Time
	if !again.IsZero() {
		timer := time.NewTimer(time.Until(again))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-b.wake:
	case <-due:
	case <-ctx.Done():
	}
}

// put stores a batch and, if it succeeds, unblocks the callers of add.
func (b *batcher) put(ctx context.Context, batch []*entry) error {
	_, err := b.reportSettled(ctx)
	if err == nil && slices.ContainsFunc(batch, func(e *entry) bool { return e.arrival.Redelivered }) {
		err = b.newSession(ctx)
	}
	if err != nil {
		return err
	}
	arrivals := make([]failed.Arrived, len(batch))
	for i, e := range batch {
		arrivals[i] = e.arrival
		arrivals[i].Session = fmt.Sprintf("%s.%d", b.name, b.sessions)
		e.arrival.Redelivered = true // this attempt may store the message and still return an error
	}
	ids, err := b.store.AddDelivered(ctx, arrivals)
	if err == nil && len(ids) != len(batch) {
		err = fmt.Errorf("store must return one ID per message: got %d IDs for %d messages", len(ids), len(batch))
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	stored := make(map[*entry]bool, len(batch))
	for i, e := range batch {
		stored[e] = true
		if !e.abandoned { // the broker redelivers an abandoned message, and the store recognizes it
			b.unacked[e.message] = ids[i]
			close(e.done)
		}
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(e *entry) bool { return stored[e] })
	return nil
}

// newSession waits until the result of every ack is known and the store has recorded the acked messages. Then it
// starts a new session.
func (b *batcher) newSession(ctx context.Context) error {
	for {
		b.mu.Lock()
		unacked, settled := len(b.unacked), len(b.settled)
		b.mu.Unlock()
		switch {
		case settled > 0:
			if _, err := b.reportSettled(ctx); err != nil {
				return err
			}
		case unacked > 0:
			b.await(ctx, time.Time{})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		default:
			b.sessions++
			return nil
		}
	}
}

// reportSettled reports the acked messages to the store. reported is true if there were acked messages to report.
func (b *batcher) reportSettled(ctx context.Context) (reported bool, err error) {
	b.mu.Lock()
	ids := b.settled
	b.settled = nil
	b.mu.Unlock()
	if len(ids) == 0 {
		return false, nil
	}
	if err = b.store.MarkSettled(ctx, ids); err != nil {
		b.mu.Lock()
		b.settled = append(ids, b.settled...)
		b.mu.Unlock()
	}
	return true, err
}

// putAfterOther determines whether err concerns only e. It stores another waiting message and then retries e. refused
// reports whether the store has accepted another message but refused e. If e is stored, left is nil.
func (b *batcher) putAfterOther(ctx context.Context, e *entry, err error) (refused bool, left error) {
	if !e.retryAt.IsZero() {
		return true, err // the store has already refused e after it accepted another message
	}
	b.mu.Lock()
	var other *entry
	others := 0
	for _, o := range b.waiting {
		// A redelivery must not be stored before the first delivery of the same message.
		if o != e && !o.abandoned && o.retryAt.IsZero() && !o.message.Redelivered {
			if others++; others == 1 || b.failures%others == 0 {
				other = o
			}
		}
	}
	b.mu.Unlock()
	if other == nil || b.put(ctx, []*entry{other}) != nil {
		return false, err
	}
	err = b.put(ctx, []*entry{e})
	return err != nil, err
}

// refuse logs that the store refused a message, and delays the next attempt by refusedFor.
func (b *batcher) refuse(e *entry, err error) {
	e.retryAt = time.Now().Add(refusedFor)
	b.log.Error("cannot archive message", "queue", e.arrival.FailedQueue, "message_id", e.message.MessageID, "error", err)
}
