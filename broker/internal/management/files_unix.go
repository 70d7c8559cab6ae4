//go:build unix

package management

import (
	"os"
	"syscall"
)

// MaxFiles returns the maximum number of open files of the process.
func MaxFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return unlimitedFiles
	}
	return int64(min(uint64(limit.Cur), unlimitedFiles))
}

// openFiles returns the number of open files of the process, or 0 if the system does not tell.
func openFiles() uint64 {
	entries, _ := os.ReadDir("/dev/fd")
	return uint64(len(entries))
}
