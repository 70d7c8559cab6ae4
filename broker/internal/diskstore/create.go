package diskstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// format is the content of the file FORMAT in a data directory. This version of Reprise does not open a directory
// with any other format. Format 1 had no inventory and is not supported.
const (
	formatFile = "FORMAT"
	format     = "reprise 2\n"
)

// unfinished is the name suffix of a file or directory that is not yet complete.
const unfinished = ".new"

// create initializes a data directory, unless it already has a database.
//
// It writes the file FORMAT after the database is complete and before it renames the database. A directory with a
// database therefore always has the file FORMAT, so that a directory that has lost this file is not mistaken for a new
// directory.
func (d *disk) create() error {
	path := d.fs.PathJoin(d.dir, databaseDir)
	there, err := d.isDataDir()
	if err != nil {
		return err
	}
	if there {
		if _, err := d.fs.Stat(path + unfinished); err == nil {
			return d.rename(path)
		}
		return nil
	}
	if err := d.fs.RemoveAll(path + unfinished); err != nil {
		return err
	}
	// Mode 0700: other users of the machine may have access to the parent directory, but must not read message bodies.
	if err := d.fs.MkdirAll(path+unfinished, 0o700); err != nil {
		return err
	}
	// The log of a new database has an old format, in which damage looks like the end of the log. When the database is
	// opened again, it starts a log in the new format.
	db, err := pebble.Open(path+unfinished, d.options())
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := sealInventory(d.fs, path+unfinished, nil); err != nil {
		return err
	}
	if err := writeFormat(d.fs, d.dir); err != nil {
		return err
	}
	return d.rename(path)
}

// isDataDir reports whether the directory is a data directory. If it is not, and create cannot turn it into one,
// isDataDir returns an error. It does not change the directory.
func (d *disk) isDataDir() (there bool, err error) {
	if there, err = hasFormat(d.fs, d.dir); !there && err == nil {
		err = d.checkEmpty()
	}
	return there, err
}

func (d *disk) rename(path string) error {
	if err := d.fs.Rename(path+unfinished, path); err != nil {
		return err
	}
	return syncDir(d.fs, d.dir)
}

// checkEmpty returns an error if the directory contains files that must not be in a new data directory.
func (d *disk) checkEmpty() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == "LOCK" || strings.HasSuffix(name, unfinished) || strings.HasSuffix(name, ".sock")
	})
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w (found %s without %s; restore a backup, or use an empty or a new directory)",
		ErrDamaged, names[0], formatFile)
}

// hasFormat reports whether a directory has the file FORMAT. It returns an error if the format in the file is not
// supported.
func hasFormat(fs vfs.FS, dir string) (bool, error) {
	name := fs.PathJoin(dir, formatFile)
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 100))
	if err != nil {
		return false, err
	}
	if string(text) == format {
		return true, nil
	}
	return false, fmt.Errorf("%w: %s has %q, and this version reads %q; use the version of Reprise that wrote it, or if the file "+
		"is damaged, restore a backup", ErrFormat, name, strings.TrimSpace(string(text)), strings.TrimSpace(format))
}

// writeFormat writes the file FORMAT atomically.
func writeFormat(fs vfs.FS, dir string) error {
	name := fs.PathJoin(dir, formatFile)
	if err := writeFile(fs, name+unfinished, []byte(format)); err != nil {
		return err
	}
	if err := fs.Rename(name+unfinished, name); err != nil {
		return err
	}
	return syncDir(fs, dir)
}
