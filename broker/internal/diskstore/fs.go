package diskstore

import (
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system of the machine, or a test double that injects errors.
type FS = vfs.FS

// Dir implements [store.Store].
func (d *disk) Dir() string { return d.dir }

// Free implements [store.Store].
func (d *disk) Free() (uint64, error) {
	usage, err := d.fs.GetDiskUsage(d.dir)
	return usage.AvailBytes, err
}

// makeDir creates a directory and its missing parents, and makes the new directory entries durable.
func makeDir(fs vfs.FS, dir string) error {
	_, err := fs.Stat(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
