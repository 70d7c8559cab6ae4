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

// format is what is written into a data directory's file of that name. A version that does not know it leaves the
// directory alone.
// The first one had no inventory, and is not read any more.
const (
	formatFile = "FORMAT"
	format     = "reprise 2\n"
)

// unfinished is what is added to the name of a thing until all of it is there.
const unfinished = ".new"

// create makes what is in a data directory, unless it is there.
//
// The format is written when the database is whole and before it gets its name. So there is no moment at which a directory
// with a database in it has none, and one that has lost it is not taken for a new one.
func (d *disk) create() error {
	path := d.fs.PathJoin(d.dir, databaseDir)
	there, err := d.look()
	if err != nil {
		return err
	}
	if there {
		if _, err := d.fs.Stat(path + unfinished); err == nil {
			return d.baptize(path)
		}
		return nil
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
	if err := sealInventory(d.fs, path+unfinished, nil); err != nil {
		return err
	}
	if err := writeFormat(d.fs, d.dir); err != nil {
		return err
	}
	return d.baptize(path)
}

// look reports whether the directory is a data directory. An error says that it can be made none. It changes nothing.
func (d *disk) look() (there bool, err error) {
	if there, err = hasFormat(d.fs, d.dir); !there && err == nil {
		err = d.empty()
	}
	return there, err
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

// hasFormat reports whether a data directory has the file that says its format. An error says that it has another format.
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

// writeFormat writes the file so that there is either none or a whole one.
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
