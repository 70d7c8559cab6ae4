package diskstore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Backup implements [store.Store].
func (d *disk) Backup(dir string) error {
	if d.fs.has(dir) {
		return fmt.Errorf("%s is within the data directory: name one beside it, or on another disk", dir)
	}
	if err := d.Flush(context.Background()); err != nil {
		return err
	}
	if _, err := d.fs.Stat(dir); err == nil {
		return fmt.Errorf("%s is there already: name a directory to be made", dir)
	}
	if err := makeDir(d.fs, dir); err != nil {
		return err
	}
	if err := d.db.Checkpoint(d.fs.PathJoin(dir, databaseDir), pebble.WithFlushedWAL()); err != nil {
		return err
	}
	if err := d.listBackup(d.fs.PathJoin(dir, databaseDir)); err != nil {
		return err
	}
	return writeFormat(d.fs, dir) // last: without it the copy is not taken for one
}

// listBackup writes the inventory of a backup. It does not read the files again that were only given another name.
func (d *disk) listBackup(database string) error {
	v := inventory{number: 1, sealed: true, files: make(map[string]extent)}
	names, err := d.fs.List(database)
	if err != nil {
		return err
	}
	known := d.fs.tracker.extents()
	for _, name := range names {
		path := d.fs.PathJoin(database, name)
		about, err := d.fs.Stat(path)
		if err != nil {
			return err
		}
		is, ok := known[name]
		if !ok || !isBulk(name) || about.Size() != is.length {
			if is, err = measure(d.fs, path, -1); err != nil {
				return err
			}
		}
		if listed(name) {
			v.files[name] = is
		}
	}
	return writeInventory(d.fs, database, v)
}
