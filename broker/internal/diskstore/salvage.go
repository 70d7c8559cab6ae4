package diskstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// salvagedDir is the directory of the new database during a salvage.
const salvagedDir = databaseDir + ".salvage"

// Salvage creates a database from the readable data of a data directory that no process has open, and moves the old
// database to a subdirectory. The function repair, if not nil, receives the readable documents, and returns them
// together with replacements for missing documents. The report contains the expected and the found number of messages
// of each queue.
//
// Salvage omits tables that are completely unreadable. If such a table contained deletions of messages in older
// tables, these messages reappear, and the broker redelivers them.
func Salvage(o Options, repair func([]Document) []Document) (r Report, err error) {
	d, whole, err := openOffline(&o)
	if err != nil {
		return r, err
	}
	defer d.lock.Close()
	fs := d.fs.FS
	old, made := fs.PathJoin(o.Dir, databaseDir), fs.PathJoin(o.Dir, salvagedDir)
	if _, err := fs.Stat(old); errors.Is(err, os.ErrNotExist) {
		// If the new database is complete, a previous salvage was interrupted between the two renames.
		if v, _, err := readInventory(fs, made); err == nil && v.sealed {
			return r, d.install(made, old)
		}
		return r, fmt.Errorf("data directory %s: %s not found", o.Dir, old)
	}
	if r.Damage, err = d.compare(old, whole); err != nil {
		return r, err
	}
	v := newView(fs)
	if err := v.repair(old, r.Damage); err != nil {
		return r, err
	}
	if err := fs.RemoveAll(made); err != nil {
		return r, err
	}
	err = d.readSource(v, old, func(from *source) error {
		c, err := d.rewrite(from, made, repair)
		if err == nil {
			r.Queues, r.Documents = c.queues(), c.documents
		}
		return err
	})
	if err != nil {
		return r, err
	}
	r.Aside = fs.PathJoin(o.Dir, "damaged-"+time.Now().UTC().Format("20060102T150405Z"))
	if err := makeDir(fs, r.Aside); err != nil {
		return r, err
	}
	if err := fs.Rename(old, fs.PathJoin(r.Aside, databaseDir)); err != nil {
		return r, err
	}
	return r, errors.Join(syncDir(fs, r.Aside), d.install(made, old))
}

// install gives a new database its final name, and completes the data directory.
func (d *disk) install(made, name string) error {
	fs := d.fs.FS
	if err := fs.Rename(made, name); err != nil {
		return err
	}
	if err := syncDir(fs, d.dir); err != nil {
		return err
	}
	return writeFormat(fs, d.dir)
}

// rewrite creates a new database in the directory made, from the readable data of another database.
func (d *disk) rewrite(from *source, made string, repair func([]Document) []Document) (*contents, error) {
	options := d.options()
	options.FS = d.fs.FS
	to, err := pebble.Open(made, options)
	if err != nil {
		return nil, err
	}
	b := to.NewBatch()
	flush := func() error {
		err := to.Apply(b, pebble.NoSync)
		b.Reset()
		return err
	}
	c := &contents{visit: func(key, value []byte) error {
		if err := b.Set(key, value, nil); err != nil || b.Len() < 4<<20 {
			return err
		}
		return flush()
	}}
	err = c.read(from)
	if repair != nil {
		c.documents = repair(c.documents)
	}
	for _, doc := range c.documents {
		err = errors.Join(err, b.Set(documentKey(doc.Name), doc.Value, nil))
	}
	for _, n := range c.found {
		err = errors.Join(err, n.write(b))
	}
	// It is unknown which messages were delivered before the damage, so mark the new database as if it had not been
	// closed cleanly.
	if err = errors.Join(err, b.Set([]byte{prefixOpen}, nil, nil)); err == nil {
		err = flush()
	}
	if err == nil {
		err = to.Flush()
	}
	if err = errors.Join(err, b.Close(), to.Close()); err != nil {
		return nil, err
	}
	return c, sealInventory(d.fs.FS, made, nil)
}

// valueOf returns the current value of an iterator. It recovers if Pebble panics because the file that contains the
// value cannot be opened.
func valueOf(it *pebble.Iterator) (value []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return it.ValueAndErr()
}

// span is the range of keys [from, to).
type span struct{ from, to []byte }

// source is a database with unreadable ranges of keys. In these ranges, a scan reads the database without the damaged
// tables.
type source struct {
	db      *pebble.DB
	gaps    []span // sorted and disjoint
	without *pebble.DB
}

// scan visits the readable entries in [from, to), and reports whether all entries were readable.
func (s *source) scan(from, to []byte, visit func(key, value []byte) error) (complete bool, err error) {
	complete = true
	read := func(db *pebble.DB, from, to []byte) {
		if err == nil && bytes.Compare(from, to) < 0 {
			var all bool
			all, err = scanAll(db, from, to, visit)
			complete = complete && all
		}
	}
	for _, gap := range s.gaps {
		if bytes.Compare(gap.to, from) <= 0 || bytes.Compare(gap.from, to) >= 0 {
			continue
		}
		complete = false
		read(s.db, from, gap.from)
		read(s.without, later(from, gap.from), earlier(gap.to, to))
		from = gap.to
	}
	read(s.db, from, to)
	return complete, err
}

func earlier(a, b []byte) []byte { return slices.MinFunc([][]byte{a, b}, bytes.Compare) }
func later(a, b []byte) []byte   { return slices.MaxFunc([][]byte{a, b}, bytes.Compare) }

// scanAll visits the entries up to the first unreadable key, and skips keys with unreadable values.
func scanAll(db *pebble.DB, from, to []byte, visit func(key, value []byte) error) (complete bool, err error) {
	complete = true
	for from != nil {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
		if err != nil {
			return false, nil
		}
		from = nil
		for ok := it.First(); ok; ok = it.Next() {
			value, err := valueOf(it)
			if err != nil { // the iterator cannot continue, so use a new one
				from = append(slices.Clone(it.Key()), 0)
				break
			}
			if err := visit(it.Key(), value); err != nil {
				return complete, errors.Join(err, it.Close())
			}
		}
		if it.Close() != nil || from != nil {
			complete = false
		}
	}
	return complete, nil
}

// gap returns the unreadable part of a range. It reads from each end up to the first error. The result ok is false if
// the whole range is readable.
func gap(db *pebble.DB, all span) (part span, ok bool) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: all.from, UpperBound: all.to})
	if err != nil {
		return all, true
	}
	part = span{slices.Clone(all.from), slices.Clone(all.to)}
	for ok := it.First(); ok; ok = it.Next() {
		part.from = append(append(part.from[:0], it.Key()...), 0)
	}
	if it.Close() == nil {
		return part, false
	}
	if it, err = db.NewIter(&pebble.IterOptions{LowerBound: part.from, UpperBound: all.to}); err != nil {
		return part, true
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		part.to = append(part.to[:0], it.Key()...)
	}
	_ = it.Close()
	return part, true
}

// merged returns the union of all spans, as sorted, disjoint spans.
func merged(all []span) (apart []span) {
	slices.SortFunc(all, func(a, b span) int { return bytes.Compare(a.from, b.from) })
	for _, s := range all {
		if n := len(apart); n > 0 && bytes.Compare(s.from, apart[n-1].to) <= 0 {
			apart[n-1].to = later(apart[n-1].to, s.to)
		} else {
			apart = append(apart, s)
		}
	}
	return apart
}

// table is a table (sstable) of a database.
type table struct {
	level int
	num   uint64
	keys  span
	path  string
	blobs []uint64 // numbers of the value files that the table refers to
}

// tables returns the tables of a database.
func (d *disk) tables(v *view, database string) (all []table, err error) {
	err = d.readView(v, database, func(db *pebble.DB) error {
		levels, err := db.SSTables()
		for l, tables := range levels {
			for _, t := range tables {
				var blobs []uint64
				for _, blob := range t.GetBlobReferenceFiles() {
					blobs = append(blobs, uint64(blob))
				}
				all = append(all, table{
					blobs: blobs, level: l, num: uint64(t.FileNum),
					keys: span{slices.Clone(t.Smallest.UserKey), append(slices.Clone(t.Largest.UserKey), 0)},
					path: v.PathJoin(database, fmt.Sprintf("%06d.sst", uint64(t.BackingSSTNum))),
				})
			}
		}
		return err
	})
	return all, err
}

// readSource calls the function do with the readable part of a database.
func (d *disk) readSource(v *view, database string, do func(*source) error) error {
	all, err := d.tables(v, database)
	if err != nil {
		return err
	}
	var unusable, harmed []table
	for _, t := range all {
		switch usable, whole := checkTable(v.FS, t.path); {
		case !usable:
			unusable = append(unusable, t)
		case !whole:
			harmed = append(harmed, t)
		}
	}
	without, err := v.leaveOut(all, slices.Concat(unusable, harmed))
	if err != nil {
		return err
	}
	v, err = v.leaveOut(all, unusable)
	if err != nil {
		return err
	}
	return d.readView(v, database, func(db *pebble.DB) error {
		s := &source{db: db}
		if len(harmed) == 0 {
			return do(s)
		}
		for _, t := range harmed {
			if part, ok := gap(db, t.keys); ok {
				s.gaps = append(s.gaps, part)
			}
		}
		s.gaps = merged(s.gaps)
		return d.readView(without, database, func(db *pebble.DB) error {
			s.without = db
			return do(s)
		})
	})
}

// leaveOut returns a view of the database without the given tables. The argument all contains all tables of the
// database.
func (v *view) leaveOut(all, tables []table) (*view, error) {
	const deletedTable, deletedBlob = 6, 108 // tags in a version edit of Pebble
	var edit []byte
	used := make(map[uint64]bool)
	for _, t := range all {
		if slices.ContainsFunc(tables, func(out table) bool { return out.num == t.num }) {
			edit = binary.AppendUvarint(edit, deletedTable)
			edit = binary.AppendUvarint(edit, uint64(t.level))
			edit = binary.AppendUvarint(edit, t.num)
			continue
		}
		for _, blob := range t.blobs {
			used[blob] = true
		}
	}
	for _, t := range tables {
		for _, blob := range t.blobs { // keep files that a remaining table refers to
			if !used[blob] {
				used[blob] = true
				edit = binary.AppendUvarint(edit, deletedBlob)
				edit = binary.AppendUvarint(edit, blob)
				edit = binary.AppendUvarint(edit, blob)
			}
		}
	}
	if edit == nil {
		return v, nil
	}
	other := *v
	other.other = maps.Clone(v.other)
	for path, content := range other.other {
		if !isManifest(v.PathBase(path)) {
			continue
		}
		content, err := appendRecord(content, edit)
		if err != nil {
			return nil, err
		}
		other.other[path] = content
	}
	return &other, nil
}

// checkTable reports whether Pebble can open a table, and whether the whole table is readable.
func checkTable(fs vfs.FS, name string) (usable, whole bool) {
	f, err := fs.Open(name)
	if err != nil {
		return false, false
	}
	readable, err := objstorageprovider.NewFileReadable(f, fs, objstorageprovider.NewReadaheadConfig(), name)
	if err != nil {
		_ = f.Close()
		return false, false
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		_ = readable.Close()
		return false, false
	}
	defer r.Close()
	if _, err := r.Layout(); err != nil { // Layout reads the index
		return false, false
	}
	return true, r.ValidateBlockChecksums() == nil
}
