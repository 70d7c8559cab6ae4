//go:build !unix

package management

func maxFiles() int64 { return unlimitedFiles }

func openFiles() uint64 { return 0 }
