package diskstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Open verifies tables and value files, newest first, until it has read verifyBytes and verifyTime has passed. It
// always verifies all other files, because they are small.
const (
	verifyTime  = 5 * time.Second
	verifyBytes = 64 << 20
)

// Damage describes a file that is missing or unreadable, or whose content differs from the written data.
type Damage struct {
	File    string
	Problem string
}

func (d Damage) String() string { return d.File + ": " + d.Problem }

// advice lists the remedies for damage.
const advice = "restore a backup, or run `reprise broker check --data DIR --salvage` to keep the readable messages, " +
	"or move the directory away to start empty"

// damaged returns an ErrDamaged that names the first damaged files.
func damaged(all []Damage) error {
	const most = 5
	var text []string
	for _, d := range all[:min(len(all), most)] {
		text = append(text, d.String())
	}
	if len(all) > most {
		text = append(text, fmt.Sprintf("and %d more", len(all)-most))
	}
	return fmt.Errorf("%w: %s: %s", ErrDamaged, strings.Join(text, "; "), advice)
}

// unreadable returns an ErrDamaged for a database that Pebble cannot read.
func unreadable(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n") // the other lines of Pebble's error are internal details
	return fmt.Errorf("%w: %s: %s", ErrDamaged, text, advice)
}

// verify compares the files of a database with its inventory. Unless everything is set, it may skip the oldest tables
// and value files. It returns an error if reading an existing file fails.
func verify(fs vfs.FS, database string, v inventory, everything bool) (wrong []Damage, err error) {
	began, read := time.Now(), int64(0)
	for _, name := range slices.SortedFunc(maps.Keys(v.files), smallFirst) {
		path, is := fs.PathJoin(database, name), v.files[name]
		about, err := fs.Stat(path)
		if err != nil {
			wrong = append(wrong, Damage{path, describe(err)})
			continue
		}
		// A reused log can end with data from its previous use, so it may be longer than is.length.
		exact := isBulk(name) || v.sealed && !isLog(name)
		if size := about.Size(); size < is.length || exact && size != is.length {
			wrong = append(wrong, Damage{path, fmt.Sprintf("it has %d bytes instead of %d", size, is.length)})
			continue
		}
		if isBulk(name) && !everything && read > verifyBytes && time.Since(began) > verifyTime {
			continue // Pebble verifies the checksum of each block that it reads
		}
		read += is.length
		found, err := measure(fs, path, is.length)
		if err != nil {
			return wrong, err
		}
		if found != is {
			wrong = append(wrong, Damage{path, "checksum does not match"})
		}
	}
	return wrong, nil
}

// smallFirst compares the names of two files of a database. Small files precede value files, and value files precede
// tables. Value files and tables are in order from newest to oldest.
func smallFirst(a, b string) int {
	if c := cmp.Compare(boolInt(isBulk(a)), boolInt(isBulk(b))); c != 0 || !isBulk(a) {
		return cmp.Or(c, cmp.Compare(a, b))
	}
	return -cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // the names are numbers with leading zeros
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// examine checks whether a database can be opened, and returns its inventory. It does not change any file.
func (d *disk) examine(database string, everything bool) (v inventory, err error) {
	if _, err := d.fs.List(database); err != nil {
		return v, damaged([]Damage{{database, describe(err)}})
	}
	v, wrong, err := readInventory(d.fs, database)
	if err != nil {
		return v, err
	}
	found, err := verify(d.fs, database, v, everything)
	if err != nil {
		return v, err
	}
	if len(found) > 0 {
		return v, damaged(append(found, wrong...))
	}
	for _, w := range wrong {
		d.log.Warn("cannot read one of two inventories; using the other", "file", w.File, "problem", w.Problem)
	}
	if v.sealed {
		return v, nil
	}
	if err := d.tryOpen(database); err != nil {
		return v, err
	}
	return v, d.warnDropped(database)
}

// tryOpen checks whether Pebble can open a database that was not closed cleanly, by opening it read-only.
func (d *disk) tryOpen(database string) error {
	options := d.options()
	options.ErrorIfNotExists, options.ReadOnly = true, true
	read := &lastOpened{FS: d.fs.FS}
	options.FS = read
	db, err := pebble.Open(database, options)
	if err == nil {
		return db.Close()
	}
	if last := read.last.Load(); last != nil {
		err = fmt.Errorf("%w (last file read: %s)", err, *last)
	}
	return openError(err)
}

// lastOpened is a file system that records the name of the last opened file, because Pebble's errors about a log do
// not name the log.
type lastOpened struct {
	vfs.FS
	last atomic.Pointer[string]
}

// Open implements [vfs.FS].
func (r *lastOpened) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	r.last.Store(&name)
	return r.FS.Open(name, options...)
}

// complete adds to v all files and bytes that were written after the last inventory, and syncs them.
func (v inventory) complete(fs vfs.FS, database string) error {
	names, err := fs.List(database)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := fs.PathJoin(database, name)
		is, known := v.files[name]
		if !listed(name) || known && isBulk(name) {
			continue
		}
		about, err := fs.Stat(path)
		if err != nil {
			return err
		}
		if known && about.Size() == is.length {
			continue
		}
		if err := syncFile(fs, path); err != nil {
			return err
		}
		if v.files[name], err = measure(fs, path, -1); err != nil {
			return err
		}
	}
	return syncDir(fs, database)
}
