package diskstore

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
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

// maxReused is the maximum capacity of a change set whose memory is reused for a later change set.
const maxReused = 16 << 10

// run commits until the store is closed or has failed.
func (d *disk) run() {
	defer close(d.stopped)
	batch := d.db.NewBatch(pebble.WithMaxRetainedSizeBytes(2 * backlogBytes))
	var spare changeSet // the previous change set, whose memory is reused
	for {
		closing := false
		select {
		case <-d.wake:
		case <-d.closing:
			closing = true
		case <-d.failed: // GiveUp or a failed write
			return
		}
		sealed := d.seal(spare)
		d.commitStarted.Store(time.Now().UnixNano())
		if err := d.commit(batch, &sealed); err != nil {
			d.fail(err)
			return
		}
		d.commitStarted.Store(0)
		if !d.finish(&sealed) || closing {
			return
		}
		if spare = sealed; cap(spare.changes) > maxReused {
			spare = changeSet{} // release the memory after a burst of changes
		}
		clear(spare.changes)
		clear(spare.others)
		clear(spare.parts)
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
		counts:  spare.counts[:0],
		waiters: spare.waiters[:0],
	}
	d.backlog.Set(false)
	return sealed
}

// commit writes a change set to the database and syncs it to disk.
func (d *disk) commit(batch *pebble.Batch, g *changeSet) error {
	if len(g.changes) == g.dropped && len(g.others) == 0 {
		return nil
	}
	var before part
	for i, p := range g.parts {
		if err := g.write(batch, before, p); err != nil {
			return err
		}
		last := i == len(g.parts)-1
		switch {
		case !batch.Empty():
			how := pebble.NoSync
			if last {
				how = pebble.Sync
			}
			if err := d.db.Apply(batch, how); err != nil {
				return err
			}
			batch.Reset()
		case last && i > 0: // the last part is empty, but the earlier parts are not yet synced
			if err := d.db.LogData(nil, pebble.Sync); err != nil {
				return err
			}
		}
		before = p
	}
	return nil
}

// write adds the changes of part p to the batch. The argument before is the previous part.
func (g *changeSet) write(batch *pebble.Batch, before, p part) error {
	others := g.others[before.others:p.others]
	var key, value []byte
	for i := before.changes; i < p.changes; i++ {
		for ; len(others) > 0 && others[0].before == i; others = others[1:] {
			if err := others[0].do(batch); err != nil {
				return err
			}
		}
		c := &g.changes[i]
		var err error
		switch c.kind {
		case put, update:
			key, value = appendMessageKey(key[:0], c.entry.Key), appendValue(value[:0], &c.entry)
			err = batch.Set(key, value, nil)
		case deletion:
			key = appendMessageKey(key[:0], c.entry.Key)
			err = batch.Delete(key, nil)
		}
		if err != nil {
			return err
		}
	}
	for _, o := range others {
		if err := o.do(batch); err != nil {
			return err
		}
	}
	for _, c := range p.counts {
		if err := c.write(batch); err != nil {
			return err
		}
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

// pebbleLog is a [pebble.Logger].
type pebbleLog struct{ d *disk }

// Fatalf is called for a fatal error in Pebble. It must not return.
func (l pebbleLog) Fatalf(format string, args ...any) {
	l.d.fail(fmt.Errorf(format, args...))
	blockForever()
}

func (l pebbleLog) Errorf(format string, args ...any) { l.d.log.Error(fmt.Sprintf(format, args...)) }
func (l pebbleLog) Infof(string, ...any)              {} // dropped: Pebble logs several messages per second
