package failed

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
	"github.com/reprisemq/reprise/backoff"
)

// keeper is what an Ingest needs of an Archive.
type keeper interface {
	ingest(ctx context.Context, arrivals []delivered) ([]ID, error)
	markSettled(ctx context.Context, ids []ID) error
	claimQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error)
	renewQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error)
	releaseQueue(ctx context.Context, queue, owner string) error
}

// batcher stores messages that come one by one, many in a transaction: all that have
// come while the one before was under way.
//
//	add ─► waiting ─► Add ─► handed out ─► acked ─► settled ─► Settled
//	                              └─ ack lost ─► void: delivered again
//
// The order is kept, so that a message which is delivered a second time, its
// connection having been lost, is stored after the one that has waited here since
// the first time; and then it is known. For the same reason a batch with anything in
// it that may be stored already begins a new session (delivered.Session), when of all
// that was handed out before it is known what became of its ack.
type batcher struct {
	store keeper
	most  int // in a batch
	log   *slog.Logger
	wake  signal // there may be something to do

	mu      sync.Mutex
	waiting []*entry
	handed  map[*reprise.Message]ID // stored, and what became of the ack is not known
	settled []ID                    // acked, and the store has not been told

	name     string // of this batcher, in sessions
	sessions int
	failures int // of the store, one after the other

	tell func(error) // is told whether what waits could be stored; nil: nobody is
}

// entry is a message that waits to be stored.
type entry struct {
	arrival delivered
	message *reprise.Message
	again   time.Time     // the store refuses it, but takes others: when it is tried again
	done    chan struct{} // closed when it is stored
	gone    bool          // nobody waits for it any more
}

// looks are equal where messages are, and hardly ever where they are not.
type looks struct {
	id   string
	body uint64
}

var looksSeed = maphash.MakeSeed()

func (e *entry) looks() looks {
	return looks{e.message.MessageID, maphash.Bytes(looksSeed, e.message.Body)}
}

// storeBackoff is between attempts at a store that fails.
var storeBackoff = backoff.Equal(backoff.Exponential{Initial: 100 * time.Millisecond, Max: 30 * time.Second})

// refusedFor is how long a message is left alone that the store does not take.
const refusedFor = time.Minute

func newBatcher(store keeper, most int, log *slog.Logger) *batcher {
	return &batcher{
		store: store, most: most, log: log, name: rand.Text(),
		wake: newSignal(), handed: map[*reprise.Message]ID{},
	}
}

// start runs the batcher until the function that it returns is called, which is when
// nobody adds anything any more.
func (b *batcher) start(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { b.run(running) })
	return func() {
		cancel()
		wg.Wait()
		last, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		if _, err := b.tellSettled(last); err != nil {
			b.log.Warn("archive unavailable", "error", err, "next_try", time.Duration(0), "held", 0)
		}
	}
}

// add returns nil when the message is stored, or why ctx has ended.
func (b *batcher) add(ctx context.Context, m *reprise.Message, a delivered) error {
	e := &entry{arrival: a, message: m, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, e)
	b.mu.Unlock()
	b.wake.send()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-e.done: // that counts
		return nil
	default:
		e.gone = true
		return context.Cause(ctx)
	}
}

// acked is told what became of the ack of a message that was handed out.
func (b *batcher) acked(m *reprise.Message, err error) {
	b.mu.Lock()
	id, found := b.handed[m]
	delete(b.handed, m)
	if found && err == nil {
		b.settled = append(b.settled, id)
	}
	b.mu.Unlock()
	b.wake.send()
}

// run stores what comes until ctx ends.
func (b *batcher) run(ctx context.Context) {
	size := b.most
	for ctx.Err() == nil {
		batch, next := b.next(size)
		if len(batch) == 0 {
			if told, err := b.tellSettled(ctx); told || err != nil {
				b.failed(ctx, err)
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
			size = min(2*size, b.most)
		case refused:
			b.refuse(batch[0], err)
			size = b.most
			continue
		default:
			size = max(1, len(batch)/2) // it may be one of them
		}
		b.failed(ctx, err)
	}
}

// failed tells of a store that fails, and waits before it is tried again; or that it
// does no more.
func (b *batcher) failed(ctx context.Context, err error) {
	b.mu.Lock()
	held := len(b.waiting)
	b.mu.Unlock()
	if b.tell != nil && ctx.Err() == nil {
		b.tell(err)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		b.failures++
		delay := storeBackoff.Delay(b.failures)
		b.log.Warn("archive unavailable", "error", err, "next_try", delay, "held", held)
		_ = sleep(ctx, delay)
	case b.failures > 0:
		b.failures = 0
		b.log.Info("archive available", "held", held)
	}
}

// next returns the messages to be stored together, the oldest of those that wait;
// or when the first is to be tried again that was refused.
func (b *batcher) next(size int) (batch []*entry, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(e *entry) bool { return e.gone })
	now, seen := time.Now(), map[looks]bool{}
	for _, e := range b.waiting {
		switch {
		case e.again.IsZero():
			if e.message.Redelivered && seen[e.looks()] {
				return batch, time.Time{} // it may be the same, and would not be known among those of one session
			}
			seen[e.looks()] = true
			if batch = append(batch, e); len(batch) == size {
				return batch, time.Time{}
			}
		case !e.again.After(now) && batch == nil:
			return []*entry{e}, time.Time{} // by itself, so that it takes no others along
		case again.IsZero() || e.again.Before(again):
			again = e.again
		}
	}
	return batch, again
}

// await waits until there may be something to do.
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

// put stores a batch and hands it out.
func (b *batcher) put(ctx context.Context, batch []*entry) error {
	_, err := b.tellSettled(ctx)
	if err == nil && slices.ContainsFunc(batch, func(e *entry) bool { return e.arrival.Redelivered }) {
		err = b.newSession(ctx)
	}
	if err != nil {
		return err
	}
	arrivals := make([]delivered, len(batch))
	for i, e := range batch {
		arrivals[i] = e.arrival
		arrivals[i].Session = fmt.Sprintf("%s.%d", b.name, b.sessions)
		e.arrival.Redelivered = true // if it has to be tried again: it may be stored nevertheless
	}
	ids, err := b.store.ingest(ctx, arrivals)
	if err == nil && len(ids) != len(batch) {
		err = fmt.Errorf("failed: the archive returned %d IDs for %d messages", len(ids), len(batch))
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	stored := make(map[*entry]bool, len(batch))
	for i, e := range batch {
		stored[e] = true
		if !e.gone { // else it comes again, and is known
			b.handed[e.message] = ids[i]
			close(e.done)
		}
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(e *entry) bool { return stored[e] })
	return nil
}

// newSession waits until it is known of all that was handed out whether it is acked,
// and has told the store.
func (b *batcher) newSession(ctx context.Context) error {
	for {
		b.mu.Lock()
		handed, settled := len(b.handed), len(b.settled)
		b.mu.Unlock()
		switch {
		case settled > 0:
			if _, err := b.tellSettled(ctx); err != nil {
				return err
			}
		case handed > 0:
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

// tellSettled tells the store what has been acked. It reports whether there was anything to tell.
func (b *batcher) tellSettled(ctx context.Context) (told bool, err error) {
	b.mu.Lock()
	ids := b.settled
	b.settled = nil
	b.mu.Unlock()
	if len(ids) == 0 {
		return false, nil
	}
	if err = b.store.markSettled(ctx, ids); err != nil {
		b.mu.Lock()
		b.settled = append(ids, b.settled...)
		b.mu.Unlock()
	}
	return true, err
}

// putAfterOther stores a message, for which the store has returned an error, after another one. It
// reports whether the store takes the other message and refuses this one, and the error that is left.
func (b *batcher) putAfterOther(ctx context.Context, e *entry, err error) (refused bool, left error) {
	if !e.again.IsZero() {
		return true, err // as before
	}
	b.mu.Lock()
	var other *entry
	others := 0
	for _, o := range b.waiting {
		// What is delivered a second time must not be stored before the first one.
		if o != e && !o.gone && o.again.IsZero() && !o.message.Redelivered {
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

// refuse leaves a message alone for a while.
func (b *batcher) refuse(e *entry, err error) {
	e.again = time.Now().Add(refusedFor)
	b.log.Error("cannot be archived", "queue", e.arrival.FailedQueue, "message_id", e.message.MessageID, "error", err)
}
