package failed

import "fmt"

// invalidError is an ErrInvalid with a text of its own.
type invalidError struct{ error }

func (e invalidError) Is(target error) bool { return target == ErrInvalid }
func (e invalidError) Unwrap() error        { return e.error }

// Invalid returns an error that wraps ErrInvalid. Its text is the formatted text alone.
func Invalid(format string, args ...any) error { return invalidError{fmt.Errorf(format, args...)} }

// Annotate wraps the error of a function with the failed action. Defer it with a pointer to the named result.
func Annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}
