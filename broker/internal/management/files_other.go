//go:build !unix

package management

// MaxFiles returns the maximum number of open files of the process.
func MaxFiles() int64 { return unlimitedFiles }

func openFiles() uint64 { return 0 }
