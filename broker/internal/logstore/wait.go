package logstore

import (
	"context"
	"time"
)

// Notify implements [store.Store].
func (d *disk) Notify(w Waiter) Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending.waiters = append(d.pending.waiters, w)
	d.commitSoon(false)
	return d.pending.ticket
}

// Wait implements [store.Store].
func (d *disk) Wait(ctx context.Context, t Ticket) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			d.mu.Lock() // without the lock, Wait could miss a broadcast between its check of ctx and progress.Wait
			defer d.mu.Unlock()
			d.progress.Broadcast()
		})
		defer stop()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.committed < t && d.err == nil && ctx.Err() == nil {
		d.commitNow()
		d.progress.Wait()
	}
	switch {
	case d.committed >= t:
		return nil
	case d.err != nil:
		return d.err
	}
	return context.Cause(ctx)
}

// Flush implements [store.Store].
func (d *disk) Flush(ctx context.Context) error {
	d.mu.Lock()
	t := d.pending.ticket
	d.mu.Unlock()
	return d.Wait(ctx, t)
}

// Unclean implements [store.Store].
func (d *disk) Unclean() bool { return d.unclean }

// Backlog implements [store.Store].
func (d *disk) Backlog() <-chan struct{} { return d.backlog.Raised() }

// Behind implements [store.Store].
func (d *disk) Behind() time.Duration {
	if began := d.commitStarted.Load(); began != 0 {
		return time.Since(time.Unix(0, began))
	}
	return 0
}

// Failed implements [store.Store].
func (d *disk) Failed() <-chan struct{} { return d.failed }

// Err implements [store.Store].
func (d *disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
