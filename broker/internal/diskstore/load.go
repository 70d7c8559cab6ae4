package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Load implements [store.Store].
func (d *disk) Load(queue uint64, l uint8, after uint64, n, bytes int) (all []Loaded, err error) {
	err = d.messages(queue, l, after, func(m Loaded) (more bool) {
		m.Message = slices.Clone(m.Message)
		all = append(all, m)
		bytes -= len(m.Message)
		return len(all) < n && bytes >= 0
	})
	return all, err
}

// messages visits the messages of a level whose order is greater than after. The argument of visit is valid only until
// visit returns.
func (d *disk) messages(queue uint64, l uint8, after uint64, visit func(Loaded) (more bool)) error {
	from, to := messageKey(keyOf(queue, l, after+1)), messageKey(keyOf(queue, l, maxOrder))
	return d.scan(from, to, func(key, value []byte) (more bool, err error) {
		var m Loaded
		if m.Key, err = parseMessageKey(key); err != nil {
			return false, err
		}
		if m.State, m.Message, err = parseValue(value); err != nil {
			return false, err
		}
		return visit(m), nil
	})
}

// scan visits the keys in [from, to).
func (d *disk) scan(from, to []byte, visit func(key, value []byte) (more bool, err error)) (err error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return d.unreadable(err)
	}
	defer func() {
		if e := it.Close(); err == nil && e != nil {
			err = d.unreadable(e)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return d.unreadable(err)
		}
		if more, err := visit(it.Key(), value); err != nil {
			return d.unreadable(err)
		} else if !more {
			return nil
		}
	}
	return nil // the deferred function sets err to the iterator's error, if any
}

func (d *disk) unreadable(err error) error {
	if pebble.IsCorruptionError(err) {
		err = unreadable(err)
	}
	if errors.Is(err, ErrDamaged) {
		d.damageOnce.Do(func() { close(d.damaged) })
	}
	return fmt.Errorf("cannot read data directory %s: %w", d.dir, err)
}

// Levels implements [store.Store].
func (d *disk) Levels(queue uint64) (all []Level, err error) {
	err = d.scan(queueKey(prefixCount, queue), queueKey(prefixCount, queue+1), func(key, value []byte) (bool, error) {
		c, err := parseCount(key, value)
		if err != nil {
			return false, err
		}
		if c.transients {
			err = d.dropTransients(c)
		}
		if err == nil && c.messages > 0 {
			var last uint64
			last, err = d.last(c.level)
			all = append(all, Level{Level: c.level.level, Messages: c.messages, Bytes: c.bytes, Last: last})
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.countOf(c.level).tally = *c
		return true, err
	})
	return all, err
}

// dropTransients removes the transient messages of a level. They were on disk only because memory was low, and they do
// not survive a restart, like transient messages in memory.
func (d *disk) dropTransients(c *tally) error {
	b := d.db.NewBatch()
	defer b.Close()
	err := d.messages(c.level.queue, c.level.level, 0, func(m Loaded) bool {
		if m.Transient {
			c.messages--
			c.bytes -= m.Bytes
			_ = b.Delete(messageKey(m.Key), nil) // cannot fail, because the batch is open
		}
		return true
	})
	if err != nil {
		return err
	}
	c.transients = false
	if err := c.write(b); err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}

// last returns the highest order in a level. The level must not be empty.
func (d *disk) last(l level) (uint64, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{
		LowerBound: messageKey(keyOf(l.queue, l.level, 0)), UpperBound: messageKey(keyOf(l.queue, l.level, maxOrder)),
	})
	if err != nil {
		return 0, d.unreadable(err)
	}
	var k Key
	if it.Last() {
		k, err = parseMessageKey(it.Key())
	}
	if err = errors.Join(err, it.Close()); err != nil {
		return 0, d.unreadable(err)
	}
	return k.Order, nil
}

// Documents implements [store.Store].
func (d *disk) Documents(prefix string) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		done := false
		err := d.scan(documentKey(prefix), []byte{prefixDocument + 1}, func(key, value []byte) (more bool, err error) {
			name := string(key[1:])
			if !strings.HasPrefix(name, prefix) {
				return false, nil
			}
			done = !yield(Document{Name: name, Value: slices.Clone(value)}, nil)
			return !done, nil
		})
		if err != nil && !done {
			yield(Document{}, err)
		}
	}
}

func parseCount(key, value []byte) (*tally, error) {
	if len(key) != 1+8+1 {
		return nil, fmt.Errorf("count %x: %w", key, ErrDamaged)
	}
	messages, n := binary.Uvarint(value)
	if n <= 0 {
		return nil, fmt.Errorf("count %x: %w", key, ErrDamaged)
	}
	bytes, m := binary.Varint(value[n:])
	if m <= 0 {
		return nil, fmt.Errorf("count %x: %w", key, ErrDamaged)
	}
	return &tally{
		level:    level{binary.BigEndian.Uint64(key[1:]), key[9]},
		messages: int(messages), bytes: bytes, transients: len(value) > n+m,
	}, nil
}
