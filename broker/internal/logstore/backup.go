package logstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Backup implements [store.Store]. Sealed segments do not change, so that the copy can share their files.
func (d *disk) Backup(dir string) error {
	name, within := filepath.Clean(dir), filepath.Clean(d.dir)
	if rest, found := strings.CutPrefix(name, within); found && (rest == "" || os.IsPathSeparator(rest[0])) {
		return fmt.Errorf("%s must not be in the data directory (use a directory outside, for example on another disk)", dir)
	}
	if _, err := d.fs.Stat(dir); err == nil {
		return fmt.Errorf("%s already exists (use a new directory)", dir)
	}
	var numbers []uint32
	err := d.ask(func() error {
		numbers = slices.Sorted(maps.Keys(d.segments))
		d.pinned.Add(1)
		for _, s := range d.segments {
			s.reusable = false
		}
		return d.writer.rollNow()
	})
	if err != nil {
		return err
	}
	defer d.pinned.Add(-1)
	to := &disk{fs: d.fs, logDir: d.fs.PathJoin(dir, logDirName), segments: make(map[uint32]*segment)}
	if err := makeDir(d.fs, to.logDir); err != nil {
		return err
	}
	for _, n := range numbers {
		if err := vfs.LinkOrCopy(d.fs, d.segmentName(n), to.segmentName(n)); err != nil {
			return err
		}
		if err := syncFile(d.fs, to.segmentName(n)); err != nil {
			return err
		}
		to.segments[n] = nil
	}
	last, err := to.createSegment(slices.Max(numbers) + 1)
	if err != nil {
		return err
	}
	w := &writer{d: to, active: last}
	if err := errors.Join(last.file.Close(), w.createSynced()); err != nil {
		return err
	}
	return writeFormat(d.fs, dir) // written last: without FORMAT, an incomplete copy is not a data directory
}
