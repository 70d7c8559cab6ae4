package store

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// level names a level of a queue.
type level struct {
	queue uint64
	level uint8
}

// count is how many messages there are in a level. It is written with the changes that changed it, so that nobody has to
// count them when the store is opened.
type count struct {
	level    level
	messages int
	bytes    int64
	// transients says that there may be some that are to be gone when the store is opened. It lasts until the level is
	// empty.
	transients bool

	dirty  bool // it is among the counts of what is being gathered
	gone   bool // with its queue
	sealed struct {
		messages   int
		bytes      int64
		transients bool
		gone       bool
	}
}

func (d *disk) count(k Key, messages int, bytes int64, transient bool) {
	at := level{k.Queue, k.Level}
	c := d.counts[at]
	if c == nil {
		c = &count{level: at}
		d.counts[at] = c
	}
	c.messages += messages
	c.bytes += bytes
	c.transients = (c.transients || transient) && c.messages > 0
	if !c.dirty {
		c.dirty = true
		d.gathering.counts = append(d.gathering.counts, c)
	}
}

// seal notes what is to be written.
func (c *count) seal() {
	c.dirty = false
	c.sealed.messages, c.sealed.bytes, c.sealed.transients, c.sealed.gone = c.messages, c.bytes, c.transients, c.gone
}

func (c *count) write(b *pebble.Batch) error {
	if c.sealed.gone {
		return nil
	}
	key := append(queueKey(prefixCount, c.level.queue), c.level.level)
	if c.sealed.messages == 0 {
		return b.Delete(key, nil)
	}
	value := binary.AppendUvarint(nil, uint64(c.sealed.messages))
	value = binary.AppendVarint(value, c.sealed.bytes)
	if c.sealed.transients {
		value = append(value, 1)
	}
	return b.Set(key, value, nil)
}
