//go:build !unix

package upcmd

import "io/fs"

// ownedByUser returns true: on Windows, the directory of temporary files belongs to the user.
func ownedByUser(fs.FileInfo) bool { return true }
