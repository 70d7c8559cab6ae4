package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set in the build of a release:
//
//	go build -ldflags "-X github.com/reprisemq/reprise/cmd/reprise/internal/cli.version=v1.2.3"
var version string

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(streams IO) error {
	_, err := fmt.Fprintf(streams.Stdout, "reprise %s, %s, %s/%s\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// programVersion returns the release, or the version from the Go build information.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
