package diskstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Report is the result of Check or Salvage.
type Report struct {
	Damage    []Damage
	Queues    []Contents
	Documents []Document
	Aside     string // directory to which Salvage moved the old files; empty if Salvage did not move them
}

// Contents describes the messages of one queue.
type Contents struct {
	Queue    uint64
	Expected int // number of messages according to the saved counts; -1 if the counts are unreadable
	Found    int // number of readable messages
}

// Check verifies a data directory that no process has open, and does not change it. Damage is part of the report: Check
// returns an error only if it cannot check the directory.
func Check(o Options) (Report, error) {
	d, whole, err := openOffline(&o)
	if err != nil {
		return Report{}, err
	}
	defer d.lock.Close()
	database := d.fs.PathJoin(o.Dir, databaseDir)
	var r Report
	if r.Damage, err = d.compare(database, whole); err != nil || len(r.Damage) > 0 {
		return r, err
	}
	if err := d.tryOpen(database); err != nil {
		r.Damage = append(r.Damage, Damage{database, err.Error()})
		return r, nil
	}
	v := newView(d.fs.FS)
	err = d.readView(v, database, func(db *pebble.DB) error {
		if err := db.CheckLevels(nil); err != nil {
			r.Damage = append(r.Damage, Damage{database, unreadable(err).Error()})
		}
		content := &contents{}
		if err := content.read(&source{db: db}); err != nil {
			return err
		}
		r.Queues, r.Documents = content.queues(), content.documents
		for _, q := range r.Queues {
			if q.Found != q.Expected {
				r.Damage = append(r.Damage, Damage{database, fmt.Sprintf("queue number %d has %d of %d messages", q.Queue, q.Found, q.Expected)})
			}
		}
		return nil
	})
	return r, err
}

// errNoData is returned for a directory that is not a data directory.
var errNoData = fmt.Errorf("file %s and directory %s not found", formatFile, databaseDir)

// openOffline locks an existing data directory that no broker uses. The result whole reports whether the file FORMAT
// is intact.
func openOffline(o *Options) (d *disk, whole bool, err error) {
	o.FS = cmp.Or(o.FS, system)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	d = &disk{dir: o.Dir, log: o.Log, failed: make(chan struct{}), damaged: make(chan struct{})}
	d.fs = &guard{FS: o.FS, d: d}
	whole, err = hasFormat(o.FS, o.Dir)
	if err == nil && !whole {
		if _, err = o.FS.Stat(o.FS.PathJoin(o.Dir, databaseDir)); err != nil {
			err = errNoData
		}
	}
	if errors.Is(err, ErrFormat) && isFormatDamaged(o.FS, o.Dir) {
		err = nil
	}
	if err == nil {
		if d.lock, err = pebble.LockDirectory(o.Dir, o.FS); err != nil {
			err = inUse(err)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return d, whole, nil
}

// isFormatDamaged reports whether the content of the file FORMAT is damaged, rather than the format of another version.
func isFormatDamaged(fs vfs.FS, dir string) bool {
	text, err := readFile(fs, fs.PathJoin(dir, formatFile))
	return err == nil && (!bytes.HasPrefix(text, []byte("reprise ")) || !bytes.HasSuffix(text, []byte("\n")))
}

// compare returns the differences between the files of the database and the inventory.
func (d *disk) compare(database string, whole bool) (wrong []Damage, err error) {
	if !whole {
		wrong = append(wrong, Damage{d.fs.PathJoin(d.dir, formatFile), "it is missing or damaged"})
	}
	v, inventories, err := readInventory(d.fs, database)
	if err != nil {
		return append(wrong, inventories...), nil
	}
	if v.sealed { // a crash can leave one of the two inventories torn
		wrong = append(wrong, inventories...)
	}
	found, err := verify(d.fs, database, v, true)
	return append(wrong, found...), err
}

// contents is the readable part of a database.
type contents struct {
	documents []Document
	expected  map[uint64]int // number of messages in each queue, according to the counts
	counted   bool           // all counts are readable
	found     map[level]*tally
	visit     func(key, value []byte) error // called for each valid message; may be nil
}

// readCounts reads the readable documents and counts.
func (c *contents) readCounts(from *source) error {
	c.expected = make(map[uint64]int)
	_, err := from.scan([]byte{prefixDocument}, []byte{prefixDocument + 1}, func(key, value []byte) error {
		c.documents = append(c.documents, Document{Name: string(key[1:]), Value: slices.Clone(value)})
		return nil
	})
	if err != nil {
		return err
	}
	// Empty queues do not have a count.
	c.counted, err = from.scan([]byte{prefixCount}, []byte{prefixCount + 1}, func(key, value []byte) error {
		n, err := parseCount(key, value)
		if err == nil {
			c.expected[n.level.queue] += n.messages
		}
		return nil
	})
	return err
}

// read reads the readable documents, counts and messages.
func (c *contents) read(from *source) error {
	c.found = make(map[level]*tally)
	if err := c.readCounts(from); err != nil {
		return err
	}
	_, err := from.scan([]byte{prefixMessage}, []byte{prefixMessage + 1}, func(key, value []byte) error {
		k, err := parseMessageKey(key)
		if err != nil {
			return nil // an invalid message is not counted as found
		}
		s, _, err := parseValue(value)
		if err != nil {
			return nil
		}
		at := level{k.Queue, k.Level}
		n := c.found[at]
		if n == nil {
			n = &tally{level: at}
			c.found[at] = n
		}
		n.messages++
		n.bytes += s.Bytes
		n.transients = n.transients || s.Transient
		if c.visit == nil {
			return nil
		}
		return c.visit(key, value)
	})
	return err
}

// queues returns the expected number and the found number of messages of each queue.
func (c *contents) queues() (all []Contents) {
	found := make(map[uint64]int)
	for at, n := range c.found {
		found[at.queue] += n.messages
	}
	ids := slices.Sorted(maps.Keys(found))
	for id := range c.expected {
		if found[id] == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		expected, ok := c.expected[id]
		if !ok {
			expected = -1
			if c.counted {
				expected = 0
			}
		}
		all = append(all, Contents{id, expected, found[id]})
	}
	return all
}
