package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// watchedFile is the file of an SQLite database. If the file is deleted or replaced, SQLite continues to write to the
// old file, whose data is lost when the last connection closes.
type watchedFile struct {
	sqlite bool
	known  atomic.Pointer[file] // nil until watch
}

type file struct {
	path string // "" for an in-memory database
	info os.FileInfo
	wal  bool // the file has a write-ahead log while a connection is open
}

// watch records the identity of the file.
func (w *watchedFile) watch(ctx context.Context, pool *sql.DB) error {
	if !w.sqlite || w.known.Load() != nil {
		return nil
	}
	ctx, cancel := limited(ctx, ReadLimit)
	defer cancel()
	var f file
	var mode string
	if err := pool.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&f.path); err != nil {
		return err
	}
	if f.path == "" { // in memory
		w.known.Store(&f)
		return nil
	}
	if err := pool.QueryRowContext(ctx, `SELECT journal_mode FROM pragma_journal_mode`).Scan(&mode); err != nil {
		return err
	}
	f.wal = mode == "wal"
	var err error
	if f.info, err = os.Stat(f.path); err != nil {
		return f.gone(err)
	}
	w.known.Store(&f)
	return nil
}

// check returns ErrGone if the file was removed, replaced or emptied. If written is set, the write-ahead log must also
// exist. The caller may set written after a write, while the connection is still open.
func (w *watchedFile) check(written bool) error {
	f := w.known.Load()
	if f == nil || f.path == "" {
		return nil
	}
	now, err := os.Stat(f.path)
	switch {
	case err != nil:
		return f.gone(err)
	case !os.SameFile(f.info, now):
		return gone(fmt.Sprintf("file %s was replaced by another one (put the file back, or restart this process to use the new one)", f.path))
	case now.Size() == 0:
		return gone(fmt.Sprintf("file %s was truncated (restart this process to start with an empty archive)", f.path))
	}
	if !written || !f.wal {
		return nil
	}
	return f.checkLog()
}

// checkLog returns ErrGone if the write-ahead log is missing or has no header. If another process has truncated the
// log, SQLite appends behind a gap, and does not read the appended data after a crash.
func (f *file) checkLog() error {
	path := f.path + "-wal"
	log, err := os.Open(path) // opening and closing the log is safe, because SQLite does not lock it
	if errors.Is(err, fs.ErrNotExist) {
		return gone(fmt.Sprintf("file %s with the newest part of the database was deleted (stop this process with SIGTERM, which saves this part, and start it again)", path))
	}
	if err != nil {
		return nil // an unreadable log does not prove damage
	}
	defer log.Close()
	var magic [4]byte
	if _, err := io.ReadFull(log, magic[:]); err == nil && magic == [4]byte{} {
		return gone(fmt.Sprintf("file %s with the newest part of the database was truncated (kill this process with SIGKILL, because a normal stop would write the damage to the database; then start it again, or restore a backup)", path))
	}
	return nil
}

func (f *file) gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return gone(fmt.Sprintf("file %s was deleted or moved (put the file back, or restart this process to begin with an empty one)", f.path))
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
