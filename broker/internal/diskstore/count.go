package diskstore

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// level identifies the messages of one queue that have the same store level (see [store.Key]).
type level struct {
	queue uint64
	level uint8
}

// tally is the number and the total size of the messages in a level. The store saves it in the same batch as the
// messages, so that Open does not have to count all messages.
type tally struct {
	level    level
	messages int
	bytes    int64
	// transients is set if the level may contain transient messages, which the next Open removes. It remains set until
	// the level is empty.
	transients bool
}

// count is the current tally of a level, including the pending changes.
type count struct {
	tally
	dirty   bool // is in changeSet.counts
	deleted bool // the queue was deleted
}

func (d *disk) count(k Key, messages int, bytes int64, transient bool) {
	c := d.countOf(level{k.Queue, k.Level})
	c.messages += messages
	c.bytes += bytes
	c.transients = (c.transients || transient) && c.messages > 0
	if !c.dirty {
		c.dirty = true
		d.pending.counts = append(d.pending.counts, c)
	}
}

// countOf returns the count of a level, and creates it if it is missing. The search is linear, because a queue has few
// levels.
func (d *disk) countOf(at level) *count {
	for _, c := range d.counts[at.queue] {
		if c.level == at {
			return c
		}
	}
	c := &count{tally: tally{level: at}}
	d.counts[at.queue] = append(d.counts[at.queue], c)
	return c
}

// cut completes the current part of the change set.
func (g *changeSet) cut() {
	p := part{changes: len(g.changes), others: len(g.others)}
	for _, c := range g.counts {
		if c.dirty = false; !c.deleted {
			p.counts = append(p.counts, c.tally)
		}
	}
	g.parts = append(g.parts, p)
	g.from, g.bytes, g.counts = len(g.changes), 0, g.counts[:0]
}

func (c tally) write(b *pebble.Batch) error {
	key := append(queueKey(prefixCount, c.level.queue), c.level.level)
	if c.messages == 0 {
		return b.Delete(key, nil)
	}
	value := binary.AppendUvarint(nil, uint64(c.messages))
	value = binary.AppendVarint(value, c.bytes)
	if c.transients {
		value = append(value, 1)
	}
	return b.Set(key, value, nil)
}
