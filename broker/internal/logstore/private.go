package logstore

import (
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// system is the file system of the operating system. Only the user that runs the process can read the files that system
// creates. Messages may contain secrets, and short passwords can be guessed from their hashes. Without system, Pebble
// would create files that all users can read.
var system vfs.FS = privateFS{vfs.Default}

const (
	privateDir  os.FileMode = 0o700
	privateFile os.FileMode = 0o600
)

type privateFS struct{ vfs.FS }

// Create implements [vfs.FS].
func (p privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err == nil {
		_ = os.Chmod(name, privateFile) // some file systems have no permissions
	}
	return f, err
}

// MkdirAll implements [vfs.FS].
func (p privateFS) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, privateDir) }

// Unwrap implements [vfs.FS].
func (p privateFS) Unwrap() vfs.FS { return p.FS }

// makePrivate restricts the permissions of the directory dir and its files, because another version or another program
// may have created them. On a test double, makePrivate does nothing. It ignores errors.
func makePrivate(on vfs.FS, dir string) {
	for {
		if _, ok := on.(privateFS); ok {
			break
		}
		if on = on.Unwrap(); on == nil {
			return
		}
	}
	_ = os.Chmod(dir, privateDir)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if f.Type().IsRegular() {
			_ = os.Chmod(filepath.Join(dir, f.Name()), privateFile)
		}
	}
}
