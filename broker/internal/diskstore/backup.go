package diskstore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Backup implements [store.Store].
func (d *disk) Backup(dir string) error {
	if d.fs.contains(dir) {
		return fmt.Errorf("%s must not be in the data directory (use a directory outside, for example on another disk)", dir)
	}
	if err := d.Flush(context.Background()); err != nil {
		return err
	}
	if _, err := d.fs.Stat(dir); err == nil {
		return fmt.Errorf("%s already exists (use a new directory)", dir)
	}
	if err := makeDir(d.fs, dir); err != nil {
		return err
	}
	if err := d.db.Checkpoint(d.fs.PathJoin(dir, databaseDir), pebble.WithFlushedWAL()); err != nil {
		return err
	}
	// The tracker knows the extents, so sealInventory does not need to read the hard-linked files.
	if err := sealInventory(d.fs, d.fs.PathJoin(dir, databaseDir), d.fs.tracker.extents()); err != nil {
		return err
	}
	return writeFormat(d.fs, dir) // written last: without FORMAT, an incomplete copy is not a data directory
}
