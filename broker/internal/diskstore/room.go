package diskstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// reserveFile occupies space in the data directory that Open needs on a full disk. Open writes new logs, and moves the
	// messages of the old logs to tables.
	reserveFile = "RESERVE"
	// reserveBytes is the default size of the reserve. It is more than the size of the logs: two memtables and the batches
	// of a few commits.
	reserveBytes = 64 << 20
)

// holdReserve creates or completes the reserve, unless the disk is almost full, and returns the free space before. Without
// a reserve, the store works, but Open can fail on a full disk.
func (d *disk) holdReserve() (free uint64, err error) {
	if free, err = d.Free(); err != nil || d.low(free) {
		return free, err
	}
	fs, name := d.fs.FS, d.fs.PathJoin(d.dir, reserveFile)
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return free, err
	}
	if err := errors.Join(f.Preallocate(0, d.reserve), f.Sync(), f.Close()); err != nil {
		_ = fs.Remove(name) // the file system is full, or does not support the reservation of space
	}
	return free, nil
}

// releaseReserve removes the reserve if the disk is almost full.
func (d *disk) releaseReserve() {
	if free, err := d.Free(); err != nil || d.low(free) {
		_ = d.fs.FS.Remove(d.fs.PathJoin(d.dir, reserveFile))
	}
}

// low reports whether a disk with this free space is almost full.
func (d *disk) low(free uint64) bool { return free < 2*uint64(d.reserve) }

// MakeRoom implements [store.Store]. A compaction writes the remaining messages before it deletes the old files. If the
// disk does not have space for them, MakeRoom leaves the work to Pebble's own compactions, which are small. No compaction
// copies large messages if the disk may not have the space; see valueSeparation.
func (d *disk) MakeRoom(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err // otherwise Pebble would wait forever
	}
	return d.catchWriteError(func() error {
		flushed, err := d.db.AsyncFlush()
		if err != nil {
			return err
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { _, _ = d.holdReserve() }()
		if !d.spaceFor(min(d.remaining(), d.fs.tracker.size(isTable))) {
			return nil
		}
		return d.db.Compact(ctx, []byte{prefixMessage}, []byte{prefixMessage + 1}, false)
	})
}

// spaceFor reports whether the disk has space for a number of bytes, and remains able to write the reserve.
func (d *disk) spaceFor(bytes int64) bool {
	free, err := d.Free()
	return err != nil || free > uint64(d.reserve+bytes)
}

// remaining returns the approximate size of all messages on disk.
func (d *disk) remaining() (bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, levels := range d.counts {
		for _, c := range levels {
			bytes += c.bytes + int64(c.messages)*changeBytes
		}
	}
	return max(0, bytes)
}

// size returns the total size of the files of a kind.
func (t *tracker) size(of func(name string) bool) (bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.files {
		if of(name) {
			bytes += f.synced.length
		}
	}
	return bytes
}

// valueSeparation keeps large values in the value file to which they were first written, because most messages are
// written, read and deleted only once. If the disk does not have space for a copy of all values, a compaction does not copy
// any value, however many value files its tables refer to.
func (d *disk) valueSeparation() pebble.ValueSeparationPolicy {
	depth := 10
	if t := d.fs.tracker; t != nil && !d.spaceFor(t.size(isBlob)) {
		depth = math.MaxInt
	}
	return pebble.ValueSeparationPolicy{
		Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: depth,
		RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 0.5,
	}
}
