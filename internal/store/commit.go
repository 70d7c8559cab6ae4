package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// commitSoon has what is gathered committed: at once, or if it can wait, after a while.
func (d *disk) commitSoon(canWait bool) {
	g := &d.gathering
	if !canWait {
		d.commitNow()
		return
	}
	if !g.lazily {
		g.lazily = true
		d.lazy.Reset(linger)
	}
}

func (d *disk) commitNow() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// sparing is for how many changes room is kept from one commit to another.
const sparing = 16 << 10

// run commits until the store is closed or has failed.
func (d *disk) run() {
	defer close(d.stopped)
	batch := d.db.NewBatch()
	var spare gathering // what was committed last; its room is used again
	for {
		closing := false
		select {
		case <-d.wake:
		case <-d.closing:
			closing = true
		}
		sealed := d.seal(spare)
		d.began.Store(time.Now().UnixNano())
		if err := d.commit(batch, &sealed); err != nil {
			d.fail(err)
			return
		}
		d.began.Store(0)
		batch.Reset()
		d.finish(&sealed)
		if closing {
			return
		}
		if spare = sealed; cap(spare.changes) > sparing {
			spare = gathering{} // one burst must not keep its room for ever
		}
	}
}

// seal ends the gathering of a commit and begins the next.
func (d *disk) seal(spare gathering) gathering {
	d.hold.Lock()
	defer d.hold.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	sealed := d.gathering
	clear(spare.changes)
	clear(spare.others)
	clear(spare.waiters)
	d.gathering = gathering{
		ticket:  sealed.ticket + 1,
		changes: spare.changes[:0],
		others:  spare.others[:0],
		counts:  spare.counts[:0],
		waiters: spare.waiters[:0],
	}
	for _, c := range sealed.counts {
		c.seal()
	}
	return sealed
}

// commit makes a gathering durable.
func (d *disk) commit(batch *pebble.Batch, g *gathering) error {
	if len(g.changes) == g.dropped && len(g.others) == 0 {
		return nil
	}
	if err := g.write(batch); err != nil {
		return err
	}
	return d.db.Apply(batch, pebble.Sync)
}

func (g *gathering) write(batch *pebble.Batch) error {
	others := g.others
	var key, value []byte
	for i := range g.changes {
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
	for _, c := range g.counts {
		if err := c.write(batch); err != nil {
			return err
		}
	}
	return nil
}

// finish tells those who waited for a commit.
func (d *disk) finish(g *gathering) {
	d.mu.Lock()
	d.committed = g.ticket
	d.progress.Broadcast()
	d.mu.Unlock()
	for _, w := range g.waiters {
		w.Committed(g.ticket)
	}
}

// fail is the end of all commits.
func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return
	}
	d.err = fmt.Errorf("the data directory %s can no longer be written, and nothing more is confirmed: %w", d.dir, err)
	d.log.Error("the store has failed; restart the broker once the cause is mended: everything confirmed so far is kept",
		"directory", d.dir, "error", err)
	d.progress.Broadcast()
	close(d.failed)
}

// GiveUp implements [Store].
func (d *disk) GiveUp(why error) { d.fail(why) }

// pebbleLog is a [pebble.Logger].
type pebbleLog struct{ d *disk }

// Fatalf is called when Pebble cannot go on. It must not return.
func (l pebbleLog) Fatalf(format string, args ...any) {
	l.d.fail(fmt.Errorf(format, args...))
	park()
}

func (l pebbleLog) Errorf(format string, args ...any) { l.d.log.Error(fmt.Sprintf(format, args...)) }
func (l pebbleLog) Infof(string, ...any)              {} // several a second
