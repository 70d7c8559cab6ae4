package diskstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// salvagedDir is where a database is made of what can be read of a damaged one.
const salvagedDir = databaseDir + ".salvage"

// Salvage makes a database of what can be read in a data directory that nobody has open, and moves the old one aside, within
// the directory. Repair may add documents that are missing. The report has what was found and what is missing.
//
// A table that cannot be read at all is left out. If it had the deletions of messages in older tables, those messages come
// again.
func Salvage(o Options, repair func([]Document) []Document) (r Report, err error) {
	d, version, err := openOffline(&o)
	if err != nil {
		return r, err
	}
	defer d.lock.Close()
	fs := d.fs.FS
	old, made := fs.PathJoin(o.Dir, databaseDir), fs.PathJoin(o.Dir, salvagedDir)
	if _, err := fs.Stat(old); errors.Is(err, os.ErrNotExist) {
		// A salvage was interrupted between its last steps.
		if v, _, err := readInventory(fs, made); err == nil && v.sealed {
			return r, d.install(made, old)
		}
		return r, fmt.Errorf("data directory %s: %s is missing", o.Dir, old)
	}
	if r.Damage, err = d.compare(old, version); err != nil {
		return r, err
	}
	v := newView(fs)
	if err := v.mend(old, r.Damage); err != nil {
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

// install gives a database its name.
func (d *disk) install(made, name string) error {
	fs := d.fs.FS
	if err := fs.Rename(made, name); err != nil {
		return err
	}
	if err := syncDir(fs, d.dir); err != nil {
		return err
	}
	return writeFormat(fs, d.dir, format)
}

// rewrite makes a database of what can be read of another one.
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
		err = errors.Join(err, n.tally().write(b))
	}
	// Which messages had been delivered is not known.
	if err = errors.Join(err, b.Set([]byte{prefixOpen}, nil, nil)); err == nil {
		err = flush()
	}
	if err == nil {
		err = to.Flush()
	}
	if err = errors.Join(err, b.Close(), to.Close()); err != nil {
		return nil, err
	}
	v, err := takeInventory(d.fs.FS, made)
	if err != nil {
		return nil, err
	}
	v.sealed = true
	return c, writeInventory(d.fs.FS, made, v)
}

// valueOf returns the value that an iterator is at. Pebble panics when the value is in a file that it cannot open.
func valueOf(it *pebble.Iterator) (value []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return it.ValueAndErr()
}

// span is a range of keys, without the end.
type span struct{ from, to []byte }

// source is a database of which some ranges cannot be read. In these, it is read without the tables that are damaged there.
type source struct {
	db      *pebble.DB
	gaps    []span // in order, and apart
	without *pebble.DB
}

// scan visits what can be read between two keys. It reports whether all could be.
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

// scanAll visits what can be read until there is a key that cannot. It skips keys whose values cannot be read.
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
			if err != nil { // an iterator does not go on after that
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

// gap returns the part of a range that cannot be read: it is read from both ends.
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

// merged returns the union of ranges.
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

// view is a file system in which some files have other contents, and some are not there.
type view struct {
	vfs.FS
	other  map[string][]byte // by path
	hidden func(name string) bool
	added  []string // names of empty files
}

func newView(fs vfs.FS) *view { return &view{FS: fs, other: make(map[string][]byte)} }

// Open implements [vfs.FS].
func (v *view) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if content, ok := v.other[name]; ok {
		return vfs.NewMemFile(content), nil
	}
	return v.FS.Open(name, options...)
}

// List implements [vfs.FS].
func (v *view) List(dir string) ([]string, error) {
	names, err := v.FS.List(dir)
	if v.hidden != nil {
		names = slices.DeleteFunc(names, v.hidden)
	}
	return append(names, v.added...), err
}

// Lock implements [vfs.FS]. The data directory is locked, and the database may be open twice.
func (*view) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// readView opens a database read-only for a moment.
func (d *disk) readView(v *view, database string, do func(*pebble.DB) error) error {
	options := d.options()
	options.FS, options.ReadOnly, options.ErrorIfNotExists = v, true, true
	options.DisableConsistencyCheck = true // leaves out what is missing
	db, err := pebble.Open(database, options)
	if err != nil {
		return unreadable(err)
	}
	return errors.Join(do(db), db.Close())
}

// mend makes up for the files of a database without which Pebble cannot open it.
func (v *view) mend(database string, wrong []Damage) error {
	names, err := v.FS.List(database)
	if err != nil {
		return err
	}
	broken := func(name string) bool {
		return slices.ContainsFunc(wrong, func(d Damage) bool { return d.File == v.PathJoin(database, name) })
	}
	manifest, content, err := v.manifest(database, names, broken)
	if err != nil {
		return err
	}
	v.hidden = func(name string) bool {
		return strings.HasPrefix(name, "marker.") || strings.HasPrefix(name, "OPTIONS-") || isManifest(name)
	}
	v.added = []string{
		manifest, "marker.manifest.000001." + manifest,
		"marker.format-version.000001." + pebble.FormatValueSeparation.String(),
	}
	v.other[v.PathJoin(database, manifest)] = content
	for _, d := range wrong { // Pebble wants to see the names of tables and value files
		if name := v.PathBase(d.File); isBulk(name) && !slices.Contains(names, name) {
			v.added = append(v.added, name)
		}
	}
	for _, name := range names {
		if !isLog(name) {
			continue
		}
		path := v.PathJoin(database, name)
		text, err := readFile(v.FS, path)
		if err != nil {
			return err
		}
		number, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
		if err != nil {
			continue
		}
		if v.other[path], err = mendedLog(text, uint32(number)); err != nil {
			return err
		}
	}
	return nil
}

// manifest returns the name and the content of the MANIFEST to be used: the newest one, or its copy, or the longest part of
// either that can be read.
func (v *view) manifest(database string, names []string, broken func(string) bool) (name string, content []byte, err error) {
	for _, n := range append(slices.Clone(names), wrongNames(names)...) {
		if base := strings.TrimPrefix(n, manifestCopy); isManifest(base) && base > name {
			name = base
		}
	}
	for _, n := range []string{name, manifestCopy + name} {
		text, err := readFile(v.FS, v.PathJoin(database, n))
		if err != nil || name == "" {
			continue
		}
		if !broken(n) && wholeRecords(text) > 0 {
			return name, text, nil
		}
		if whole := wholeRecords(text); whole > len(content) {
			content = text[:whole]
		}
	}
	if content == nil {
		return "", nil, fmt.Errorf("%s: neither the MANIFEST nor its copy can be read: restore a backup", database)
	}
	return name, content, nil
}

// wrongNames returns the names of manifests that markers name, whether they are there or not.
func wrongNames(names []string) (all []string) {
	for _, name := range names {
		if i := strings.Index(name, "MANIFEST-"); isMarker(name) && i >= 0 {
			all = append(all, name[i:])
		}
	}
	return all
}

// table is a table of a database.
type table struct {
	level int
	num   uint64
	keys  span
	path  string
	blobs []uint64 // the value files that it refers to
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

// readSource reads a database as far as it can be read.
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

// leaveOut returns a view in which the database, which has these tables, does not have some of them.
func (v *view) leaveOut(all, tables []table) (*view, error) {
	const deletedTable, deletedBlob = 6, 108 // in a version edit of Pebble
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
		for _, blob := range t.blobs { // nobody refers to it any more
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
		content, err := appended(content, edit)
		if err != nil {
			return nil, err
		}
		other.other[path] = content
	}
	return &other, nil
}

// checkTable reports whether Pebble can use a table, and whether it can read all of it.
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
	if _, err := r.Layout(); err != nil { // which reads the index
		return false, false
	}
	return true, r.ValidateBlockChecksums() == nil
}

// appended returns a manifest with one more record.
func appended(manifest, edit []byte) ([]byte, error) {
	var out bytes.Buffer
	w := record.NewWriter(&out)
	in := record.NewReader(bytes.NewReader(manifest), 0)
	for {
		r, err := in.Next()
		if err != nil {
			break // the rest is not whole
		}
		text, err := io.ReadAll(r)
		if err != nil {
			break
		}
		if _, err := w.WriteRecord(text); err != nil {
			return nil, err
		}
	}
	if _, err := w.WriteRecord(edit); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// mendedLog returns a log with those records of another one that are whole, also behind damage.
func mendedLog(content []byte, number uint32) ([]byte, error) {
	const block, longestHeader = 32 << 10, chunkHeader + 4 + 8
	var out bytes.Buffer
	w := record.NewWriter(&out)
	var text []byte
	begun, end := false, 0 // a record has begun, and the pieces so far end here
	for at := 0; at+chunkHeader < len(content); {
		payload, kind, size := piece(content[at:], number)
		if size == 0 {
			at++
			continue
		}
		next := at == end || at%block == 0 && at-end < longestHeader // the end of a block may have no room for a piece
		switch {
		case kind == firstPiece || kind == wholePiece:
			text, begun = text[:0], true
		case !next:
			begun = false
		}
		at += size
		end = at
		text = append(text, payload...)
		if begun && len(text) > 0 && (kind == lastPiece || kind == wholePiece) {
			if _, err := w.WriteRecord(text); err != nil {
				return nil, err
			}
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// The kinds of pieces of a record.
const (
	wholePiece = 1 + iota
	firstPiece
	middlePiece
	lastPiece
)

// piece reads a piece of a record of a log; its size is 0 if there is none. The three formats differ in the length of the
// header: checksum, length, kind, then the number of the log, then how far it has been synced.
func piece(content []byte, number uint32) (payload []byte, kind, size int) {
	length, encoding := int(binary.LittleEndian.Uint16(content[4:])), int(content[6])
	if encoding < 1 || encoding > 12 {
		return nil, 0, 0
	}
	header := [3]int{chunkHeader, chunkHeader + 4, chunkHeader + 4 + 8}[(encoding-1)/4]
	size = header + length
	if size > len(content) {
		return nil, 0, 0
	}
	if header > chunkHeader && binary.LittleEndian.Uint32(content[chunkHeader:]) != number {
		return nil, 0, 0 // of a log that had the file before
	}
	if !sumMatches(content[:size]) {
		return nil, 0, 0
	}
	return content[header:size], (encoding-1)%4 + 1, size
}

// sumMatches reports whether a piece of a record has the checksum that it begins with.
func sumMatches(chunk []byte) bool {
	sum := crc32.Checksum(chunk[6:], castagnoli)
	return (sum>>15|sum<<17)+0xa282ead8 == binary.LittleEndian.Uint32(chunk)
}
