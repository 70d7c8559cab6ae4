package failed

import (
	"fmt"
	"strings"
)

// actionError describes the failed action and wraps its cause. The message has the prefix "failed: " only once, even if
// the cause has the same prefix.
type actionError struct {
	what string
	err  error
}

// WithAction returns an error that describes the failed action and wraps err.
func WithAction(err error, format string, args ...any) error {
	return &actionError{fmt.Sprintf(format, args...), err}
}

// Annotate wraps the error of a function with the failed action. Defer it with a pointer to the named result.
func Annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = WithAction(*err, format, args...)
	}
}

func (e *actionError) Error() string {
	return "failed: " + e.what + ": " + strings.TrimPrefix(e.err.Error(), "failed: ")
}

func (e *actionError) Unwrap() error { return e.err }
