package reprise

import (
	"fmt"
	"runtime/debug"
)

// guard runs code of the user's other than the handler; its panics must not
// take the process down.
func guard(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reprise: the %s panicked: %v\n\n%s", what, v, debug.Stack())
		}
	}()
	return f()
}
