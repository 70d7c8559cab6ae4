package failed

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// put stores a batch and hands it out.
func (b *batcher) put(ctx context.Context, batch []*entry) error {
	err := b.tellSettled(ctx)
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
			if err := b.tellSettled(ctx); err != nil {
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

// tellSettled tells the store what has been acked.
func (b *batcher) tellSettled(ctx context.Context) error {
	b.mu.Lock()
	ids := b.settled
	b.settled = nil
	b.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	err := b.store.markSettled(ctx, ids)
	if err != nil {
		b.mu.Lock()
		b.settled = append(ids, b.settled...)
		b.mu.Unlock()
	}
	return err
}

// refuses reports whether the store takes other messages, but not this one.
func (b *batcher) refuses(ctx context.Context, e *entry) bool {
	if !e.again.IsZero() {
		return true // as before
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
	return other != nil && b.put(ctx, []*entry{other}) == nil && b.put(ctx, []*entry{e}) != nil
}

// refuse leaves a message alone for a while.
func (b *batcher) refuse(e *entry, err error) {
	e.again = time.Now().Add(refusedFor)
	b.log.Error("cannot be archived", "queue", e.arrival.FailedQueue, "message_id", e.message.MessageID, "error", err)
}
