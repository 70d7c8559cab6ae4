package logstore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// reserveFile occupies space in the data directory that Open needs on a full disk: for a new segment, and for the summary
	// of the previous one.
	reserveFile = "RESERVE"
	// reserveBytes is the default size of the reserve.
	reserveBytes = 64 << 20
)

// holdReserve creates or completes the reserve, unless the disk is almost full, and returns the free space before. Without
// a reserve, the store works, but Open can fail on a full disk.
func (d *disk) holdReserve() (free uint64, err error) {
	if free, err = d.Free(); err != nil || d.low(free) {
		return free, err
	}
	name := d.fs.PathJoin(d.dir, reserveFile)
	f, err := d.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return free, err
	}
	if err := errors.Join(f.Preallocate(0, d.reserve), f.Sync(), f.Close()); err != nil {
		_ = d.fs.Remove(name) // the file system is full, or does not support the reservation of space
	}
	return free, nil
}

// releaseReserve removes the reserve if the disk is almost full.
func (d *disk) releaseReserve() {
	if free, err := d.Free(); err != nil || d.low(free) {
		_ = d.fs.Remove(d.fs.PathJoin(d.dir, reserveFile))
	}
}

// low reports whether a disk with this free space is almost full.
func (d *disk) low(free uint64) bool { return free < 2*uint64(d.reserve) }

// spaceFor reports whether the disk has space for a number of bytes, and remains able to write the reserve.
func (d *disk) spaceFor(bytes int64) bool {
	free, err := d.Free()
	return err != nil || free > uint64(d.reserve+bytes)
}
