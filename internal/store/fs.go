package store

import "github.com/cockroachdb/pebble/v2/vfs"

// FS is a file system, the machine's or one that a test makes fail.
type FS = vfs.FS

// Free implements [Store].
func (d *disk) Free() (uint64, error) {
	usage, err := d.fs.GetDiskUsage(d.dir)
	return usage.AvailBytes, err
}
