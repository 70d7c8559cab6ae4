package failed

import "fmt"

// NotFoundError is an ErrNotFound with the kind and the ID of the missing object.
type NotFoundError struct {
	What string // message, group, replay or revision
	ID   int64
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %d not found", e.What, e.ID) }

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// FilterError is an error that concerns a condition of a Filter.
type FilterError struct {
	Param string // FilterParam.Name of a condition; may be "" if the error concerns several conditions
	Err   error
}

func (e *FilterError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FilterError) Unwrap() error { return e.Err }
