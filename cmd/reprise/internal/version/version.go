// Package version knows the version of the program.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// version is set in the build of a release:
//
//	go build -ldflags "-X github.com/reprisemq/reprise/cmd/reprise/internal/version.version=v1.2.3"
var version string

// Command is reprise version.
type Command struct{}

// Run prints the version.
func (Command) Run(streams terminal.IO) error {
	_, err := fmt.Fprintf(streams.Stdout, "reprise %s, %s, %s/%s\n", String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// String returns the release, or the version from the Go build information.
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
