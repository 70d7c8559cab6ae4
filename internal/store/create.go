package store

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

// format is what is written into a data directory's file of that name. A version that does not know it leaves the
// directory alone.
const (
	formatFile = "FORMAT"
	format     = "reprise 1\n"
)

// unfinished is what is added to the name of a thing until all of it is there.
const unfinished = ".new"

// create makes what is in a data directory, unless it is there.
//
// The format is written when the database is whole and before it gets its name. So there is no moment at which a directory
// with a database in it has none, and one that has lost it is not taken for a new one.
func (d *disk) create() error {
	path := d.fs.PathJoin(d.dir, databaseDir)
	known, err := known(d.fs, d.dir)
	if err != nil {
		return err
	}
	if known {
		if _, err := d.fs.Stat(path + unfinished); err == nil {
			return d.baptize(path)
		}
		return nil
	}
	if err := d.empty(); err != nil {
		return err
	}
	if err := d.fs.RemoveAll(path + unfinished); err != nil {
		return err
	}
	// The directory itself may have been made by somebody who lets others look into it; bodies are nobody else's business.
	if err := d.fs.MkdirAll(path+unfinished, 0o700); err != nil {
		return err
	}
	// A new database begins its log in an old format, in which damage looks like the end of the log. The next time it is
	// opened its log is of the format that it is in itself.
	db, err := pebble.Open(path+unfinished, d.options())
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := writeFormat(d.fs, d.dir); err != nil {
		return err
	}
	return d.baptize(path)
}

func (d *disk) baptize(path string) error {
	if err := d.fs.Rename(path+unfinished, path); err != nil {
		return err
	}
	return syncDir(d.fs, d.dir)
}

// empty reports by an error what is in a directory that should not be there if it is to be made a data directory.
func (d *disk) empty() error {
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
	return fmt.Errorf("%w: there is %s, but no file %s: restore a backup, or name an empty directory, or none that is there",
		ErrDamaged, names[0], formatFile)
}

// known reports whether a directory has a store in it already, of a format that is known.
func known(fs vfs.FS, dir string) (bool, error) {
	f, err := fs.Open(fs.PathJoin(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 100))
	if err == nil && string(text) != format {
		err = fmt.Errorf("%w: it is %q, and this is %q; use the version of Reprise that wrote it",
			ErrFormat, strings.TrimSpace(string(text)), strings.TrimSpace(format))
	}
	return err == nil, err
}

// writeFormat writes the file so that there is either none or a whole one.
func writeFormat(fs vfs.FS, dir string) error {
	name := fs.PathJoin(dir, formatFile)
	f, err := fs.Create(name+unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(format))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+unfinished, name); err != nil {
		return err
	}
	return syncDir(fs, dir)
}
