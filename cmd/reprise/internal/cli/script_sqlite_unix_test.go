//go:build unix

package cli

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

func init() { programs["sqlite-close"] = sqliteClose }

// sqliteClose simulates SQLite before 3.51, which deletes the write-ahead log of a file when the last connection to
// the file is closed. The argument is the file. A connection is the last connection if no other process has a lock on
// SQLite's shared range.
func sqliteClose() {
	path := os.Args[1]
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		shared := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: 0x40000002, Len: 510}
		if syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &shared) == nil {
			err = os.Remove(path + "-wal")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
