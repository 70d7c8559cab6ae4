package failed

import (
	"fmt"
	"strings"
)

// doingError describes the failed action and wraps its cause. The message contains the prefix "failed: " once, even
// if the cause has the same prefix.
type doingError struct {
	what string
	err  error
}

func doing(err error, format string, args ...any) error {
	return &doingError{fmt.Sprintf(format, args...), err}
}

// annotate wraps the error of a function with the failed action. Defer it with a pointer to the named result.
func annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = doing(*err, format, args...)
	}
}

func (e *doingError) Error() string {
	return "failed: " + e.what + ": " + strings.TrimPrefix(e.err.Error(), "failed: ")
}

func (e *doingError) Unwrap() error { return e.err }
