package diskstore

import (
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// system is the machine's file system. What is made on it can be read by the owner of the process alone: messages may hold
// secrets, and the hash of a short password gives the password away. Pebble lets everybody read what it makes.
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

// makePrivate changes the permissions of a directory of the machine's, and of the files in it, which may have been made by
// another version, or copied by other programs. It does so as far as the file system lets it.
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
