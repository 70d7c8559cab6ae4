package logstore

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Copy copies a backup, or a data directory that no process has open. The destination must be empty or must not exist.
func Copy(from, to string) error {
	fs := system
	if err := copyable(fs, from, to); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(from, fs)
	switch {
	case err == nil:
		defer lock.Close()
	case errors.Is(err, syscall.EROFS): // on a read-only file system, no broker can have the directory open
	default:
		return fmt.Errorf("%s: %w", from, inUse(err))
	}
	if err := makeDir(fs, to); err != nil {
		return err
	}
	_, err = vfs.Clone(fs, fs, fs.PathJoin(from, logDirName), fs.PathJoin(to, logDirName), vfs.CloneSync)
	if err != nil {
		return err
	}
	if err := syncDir(fs, to); err != nil {
		return err
	}
	return writeFormat(fs, to) // written last: without FORMAT, an incomplete copy is not a data directory
}

// copyable returns an error if Copy cannot copy the data directory to the destination.
func copyable(fs vfs.FS, from, to string) error {
	whole, err := hasFormat(fs, from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if !whole {
		return fmt.Errorf("%s is not a data directory or a complete backup: file %s not found", from, formatFile)
	}
	there, err := fs.List(to)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && len(there) > 0:
		return fmt.Errorf("%s must be empty (use an empty or a new directory)", to)
	}
	return err
}
