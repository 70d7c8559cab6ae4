package logstore

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// commitSoon requests a commit of the pending changes: immediately or, if canWait is set, after at most commitDelay.
func (d *disk) commitSoon(canWait bool) {
	g := &d.pending
	if !canWait {
		d.commitNow()
		return
	}
	if !g.delayed {
		g.delayed = true
		d.delayTimer.Reset(commitDelay)
	}
}

func (d *disk) commitNow() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// request is work that the goroutine of run does after the pending changes are durable.
type request struct {
	do   func() error
	done chan error
}

// ask makes the goroutine of run do some work.
func (d *disk) ask(do func() error) error {
	r := request{do, make(chan error, 1)}
	select {
	case d.requests <- r:
	case <-d.stopped:
		return d.stopReason()
	case <-d.failed:
		return d.stopReason()
	}
	select {
	case err := <-r.done:
		return err
	case <-d.failed:
		return d.stopReason()
	}
}

func (d *disk) stopReason() error {
	if err := d.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// maxReused is the maximum capacity of a change set whose memory is reused for a later change set.
const maxReused = 16 << 10

// run commits until the store is closed or has failed.
func (d *disk) run() {
	defer close(d.stopped)
	var spare changeSet // the previous change set, whose memory is reused
	for {
		closing := false
		var asked request
		select {
		case <-d.wake:
		case asked = <-d.requests:
		case <-d.closing:
			closing = true
		case <-d.failed: // GiveUp or a failed write
			return
		}
		sealed := d.seal(spare)
		d.commitStarted.Store(time.Now().UnixNano())
		err := d.commit(&sealed)
		if err == nil && asked.do != nil {
			err = asked.do()
			asked.done <- err
		}
		if err != nil {
			d.fail(err)
			return
		}
		d.commitStarted.Store(0)
		if !d.finish(&sealed) || closing {
			return
		}
		d.writer.remove()
		if d.writer.hasWork() {
			d.commitNow()
		}
		if spare = sealed; cap(spare.changes) > maxReused {
			spare = changeSet{} // release the memory after a burst of changes
		}
		clear(spare.changes)
		clear(spare.others)
		clear(spare.waiters)
	}
}

// seal returns the pending changes and starts a new change set in the memory of spare.
func (d *disk) seal(spare changeSet) changeSet {
	d.hold.Lock()
	defer d.hold.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending.cut()
	sealed := d.pending
	d.pending = changeSet{
		ticket:  sealed.ticket + 1,
		changes: spare.changes[:0],
		others:  spare.others[:0],
		parts:   spare.parts[:0],
		waiters: spare.waiters[:0],
	}
	d.backlog.Set(false)
	return sealed
}

// commit writes a change set to the log and syncs it to disk.
func (d *disk) commit(g *changeSet) error {
	w := &d.writer
	var before part
	for _, p := range g.parts {
		if err := w.roll(); err != nil {
			return err
		}
		w.begin()
		w.encode(g, before, p)
		if err := w.write(); err != nil {
			return err
		}
		before = p
	}
	if err := w.clean(); err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.recordSynced(false); err != nil && !full(err) {
		return err
	}
	return nil
}

// finish notifies the callers that wait for the commit, and returns true. If the store has failed in the meantime,
// finish does not notify them and returns false.
func (d *disk) finish(g *changeSet) (reported bool) {
	d.mu.Lock()
	if reported = d.err == nil; reported {
		d.committed = g.ticket
		d.progress.Broadcast()
	}
	d.mu.Unlock()
	if reported {
		for _, w := range g.waiters {
			w.Committed(g.ticket)
		}
	}
	return reported
}

// fail records that a write has failed. The store no longer commits.
func (d *disk) fail(cause error) {
	err := fmt.Errorf("cannot write data directory %s: %w (further messages are not confirmed)", d.dir, cause)
	if d.end(err, cause) && d.running.Load() {
		d.log.Error("store has failed; fix the cause and restart the broker (all confirmed messages are kept)",
			"directory", d.dir, "error", cause)
	}
}

// end makes the store refuse further changes with err, and wakes all waiting callers. It reports whether err was the
// first error.
func (d *disk) end(err, cause error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return false
	}
	d.err, d.cause = err, cause
	d.progress.Broadcast()
	d.backlog.Set(false)
	if cause != nil {
		close(d.failed)
	}
	return true
}

// GiveUp implements [store.Store].
func (d *disk) GiveUp(why error) {
	if d.end(fmt.Errorf("data directory %s closed after an error: %w", d.dir, why), why) {
		d.log.Error("store closed after an error; unconfirmed messages may be lost, and delivered messages are redelivered",
			"directory", d.dir, "reason", why)
	}
}

// fullRetryDelay is the delay before the store repeats a write to a full disk.
const fullRetryDelay = time.Second

// attempt repeats an operation while the disk is full or a resource of the process is exhausted, unless the store is being
// opened or closed. The operation must not be an fsync: after a failed fsync, the operating system may have dropped the
// unwritten pages, and a second fsync would succeed without them.
func (d *disk) attempt(do func() error) error {
	for {
		err := do()
		if _, synced := errors.AsType[syncError](err); err == nil || synced || !full(err) && !isTemporary(err) || !d.running.Load() {
			return err
		}
		if full(err) {
			if _, due := d.loggedFull.Due(); due {
				d.log.Error("disk is full; messages are not confirmed until space is free", "directory", d.dir, "error", err)
			}
		}
		select {
		case <-d.closing:
			return err
		case <-d.failed: // GiveUp
			return err
		case <-time.After(fullRetryDelay):
		}
	}
}

// full reports whether an error means that the disk is full.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// isTemporary reports whether an error from opening a file is temporary, for example because too many files are open.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN},
		func(e error) bool { return errors.Is(err, e) })
}
