package reprise

import (
	"errors"
	"fmt"
	"time"
)

// RetryAfter returns an error that makes a handler's message come back after d,
// whatever its Policy's Backoff says: for a downstream that names the time
// itself. It counts as an attempt, and when no attempt is left the message is
// parked. A negative d counts as 0. The default strategy's wait queues hold a
// message for at most topology.MaxDelay (49 days): after a longer d the message
// comes back then, and the handler can ask again.
//
// The result wraps err, which may be nil, and works from inside any chain of
// wrapped errors. Where several are wrapped in one another, the outermost counts.
func RetryAfter(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Err: err}
}

// Park returns an error that parks a handler's message now, without further
// attempts: for a message that no retry will make succeed. It wraps err, which
// may be nil.
func Park(err error) error { return &ParkError{Err: err} }

// RetryAfterError is the outcome made by RetryAfter.
type RetryAfterError struct {
	Delay time.Duration
	Err   error
}

// Error returns the text of the wrapped error.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return e.Err.Error()
}

func (e *RetryAfterError) Unwrap() error { return e.Err }

// ParkError is the outcome made by Park.
type ParkError struct {
	Err error
}

// Error returns the text of the wrapped error.
func (e *ParkError) Error() string {
	if e.Err == nil {
		return "parked by the handler"
	}
	return e.Err.Error()
}

func (e *ParkError) Unwrap() error { return e.Err }

// PanicError is the error of an attempt whose handler panicked. It is treated
// as any other error: the message is retried.
type PanicError struct {
	Value any    // what the handler panicked with
	Stack []byte // of the goroutine, as debug.Stack formats it
}

// Error returns the value and the stack: both are recorded on the message.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error, so that a handler may panic with
// an outcome.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrHandlerExited is the error of an attempt whose handler left through
// runtime.Goexit (which testing.T.FailNow calls) and so returned nothing.
var ErrHandlerExited = errors.New("reprise: the handler ended its goroutine without returning (runtime.Goexit)")

// outcome is what becomes of a delivery after an attempt.
type outcome int

const (
	succeeded outcome = iota // ack
	failed                   // retry after the policy's delay, or park
	later                    // retry after the handler's delay, or park
	hopeless                 // park
)

// classify reads the outcome off a handler's error.
func classify(err error) (outcome, time.Duration) {
	if err == nil {
		return succeeded, 0
	}
	// Walked by hand, since the outermost outcome of the chain counts, of
	// whichever type.
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *RetryAfterError:
			return later, max(0, x.Delay)
		case *ParkError:
			return hopeless, 0
		case interface{ Unwrap() []error }:
			return classifyJoined(x.Unwrap())
		}
	}
	return failed, 0
}

// classifyJoined looks through errors that are equals: one that says Park
// speaks for all, since no retry helps it; else the longest RetryAfter.
func classifyJoined(errs []error) (result outcome, delay time.Duration) {
	result = failed
	for _, err := range errs {
		switch o, d := classify(err); o {
		case hopeless:
			return hopeless, 0
		case later:
			result, delay = later, max(delay, d)
		}
	}
	return result, delay
}
