package announce

import (
	"crypto/rand"
	"encoding/hex"
	"runtime/debug"
	"sync"
)

const module = "github.com/reprisemq/reprise"

// versions returns the versions of the program and of this module from the build information.
var versions = sync.OnceValues(func() (program, reprise string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	program = info.Main.Version
	if info.Main.Path == module {
		return program, program
	}
	for _, m := range info.Deps {
		if m.Path == module {
			reprise = m.Version
			if m.Replace != nil {
				reprise = m.Replace.Version
			}
		}
	}
	return program, reprise
})

// newID returns a random identifier.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
