package claimcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a Store of files in a directory, which must exist, for example on a network file system that all processes share.
// Put replaces a file atomically and syncs it, so that a crash does not leave an incomplete body. The modification time of a
// file is the time of the last Put:
//
//	find /var/lib/bodies -type f -mtime +30 -delete
type Dir string

// Put stores a body.
func (d Dir) Put(_ context.Context, key string, body []byte) (err error) {
	f, err := os.CreateTemp(string(d), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(body)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), d.path(key)); err != nil {
		return err
	}
	return d.sync()
}

// sync makes a renamed file durable.
func (d Dir) sync() error {
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Get returns a body. If the directory is missing, for example because it is not mounted, the error does not match
// fs.ErrNotExist, because the body may exist.
func (d Dir) Get(_ context.Context, key string) ([]byte, error) {
	body, err := os.ReadFile(d.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		err = cmp.Or(d.check(), err)
	}
	return body, err
}

// check returns an error if the directory is missing. The error does not match fs.ErrNotExist.
func (d Dir) check() error {
	info, err := os.Stat(string(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %q not found", string(d))
	case err == nil && !info.IsDir():
		return fmt.Errorf("%q is not a directory", string(d))
	}
	return err
}

// path returns the path of a body. Check calls the Store only with the digits of a hash.
func (d Dir) path(key string) string { return filepath.Join(string(d), filepath.Base(key)) }
