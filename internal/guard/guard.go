// Package guard calls user code and recovers from its panics, so that a panic does not terminate the process. It imports
// only the standard library.
package guard

import (
	"fmt"
	"runtime/debug"
)

// Call calls f and returns its error, or an error that describes its panic. The argument name, such as "limiter",
// identifies f in that error.
func Call(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reprise: the %s panicked: %v\n\n%s", name, v, debug.Stack())
		}
	}()
	return f()
}
