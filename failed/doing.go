package failed

import (
	"fmt"
	"strings"
)

// doingError says what could not be done, and whose error it is: once, though those of
// this package say so themselves.
type doingError struct {
	what string
	err  error
}

func doing(err error, format string, args ...any) error {
	return &doingError{fmt.Sprintf(format, args...), err}
}

// annotate adds to the error of a function what could not be done, when it returns.
func annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = doing(*err, format, args...)
	}
}

func (e *doingError) Error() string {
	return "failed: " + e.what + ": " + strings.TrimPrefix(e.err.Error(), "failed: ")
}

func (e *doingError) Unwrap() error { return e.err }
