package reprise

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/topology"
)

// RetryAfter returns an error that makes the worker retry the message after d, regardless of the Backoff of its Policy.
// Use it if a downstream service specifies the delay. The attempt counts. If no attempt is left, the message is parked.
// A negative d counts as 0. The wait queues of the default strategy delay a message for at most topology.MaxDelay (49
// days). If d is longer, the message is retried after MaxDelay, and the handler can return RetryAfter again. Routes
// that determine the delay themselves (topology.WaitQueue, GrowingTTL, Requeuing, DelayedRetry, DeadLettering) ignore
// d.
//
// The result wraps err, which may be nil. It also takes effect inside a chain of wrapped errors. If a chain has several
// outcomes, the outermost applies.
func RetryAfter(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Err: err}
}

// Snooze returns an error that has the effect of RetryAfter, but the attempt does not count: the number of attempts, the
// recorded errors and the time of the first failure do not change. Use it if the message cannot be processed yet, for
// example before a shop opens. Nothing limits the number of such attempts. With a route on which the broker counts the
// attempts (topology.Requeuing, DelayedRetry, DeadLettering and the routes of message TTLs), Snooze equals RetryAfter.
func Snooze(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Uncounted: true, Err: err}
}

// PauseFor returns an error that has the effect of RetryAfter, and also makes the worker stop consuming for d. Use it if a
// downstream service must not receive any calls. Running handlers continue. The worker requeues messages that it has not
// started. Other workers, in this process or elsewhere, are not affected.
func PauseFor(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Pause: true, Err: err}
}

// Park returns an error that makes the worker park the message immediately, without further attempts. Use it if a retry
// cannot succeed. The result wraps err, which may be nil.
func Park(err error) error { return &ParkError{Err: err} }

// Annotate returns err together with headers for the copy of the message that is retried or parked. A header replaces an
// existing header of the same name. Use it to record the progress for the next attempt, or information for the operator.
// The outcome of err does not change. If err is nil, Annotate returns nil, because there is no copy.
//
// Values have the same types as in Message.Headers. The worker omits headers whose names belong to Reprise
// (x-reprise-…, except for the headers of its middleware), to the strategy or to RabbitMQ. If a header cannot be
// encoded, or the headers do not fit into the header frame, the worker omits all headers of Annotate and adds a note to
// the recorded error of the attempt. If several calls of Annotate set the same header, the outermost applies. A retry
// without a copy (with topology.Requeuing, DelayedRetry or DeadLettering) ignores the headers.
func Annotate(err error, headers map[string]any) error {
	if err == nil || len(headers) == 0 {
		return err
	}
	return &AnnotatedError{Err: err, Headers: headers}
}

// RetryAfterError is the outcome that RetryAfter, Snooze and PauseFor return.
type RetryAfterError struct {
	Delay time.Duration
	Pause bool // the worker does not consume during the Delay
	Err   error

	Uncounted bool // the attempt does not count
}

// Error returns the string of the wrapped error, or a string with the Delay if Err is nil.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return e.Err.Error()
}

func (e *RetryAfterError) Unwrap() error { return e.Err }

// AnnotatedError is the error that Annotate returns.
type AnnotatedError struct {
	Err     error // not nil
	Headers map[string]any
}

// Error returns the string of the wrapped error.
func (e *AnnotatedError) Error() string { return e.Err.Error() }

func (e *AnnotatedError) Unwrap() error { return e.Err }

// ParkError is the outcome that Park returns.
type ParkError struct {
	Err error
}

// Error returns the string of the wrapped error, or a default string if Err is nil.
func (e *ParkError) Error() string {
	if e.Err == nil {
		return "parked by the handler"
	}
	return e.Err.Error()
}

func (e *ParkError) Unwrap() error { return e.Err }

// PanicError is the error of an attempt whose handler panicked. The worker treats it like any other error.
type PanicError struct {
	Value any    // value of the panic
	Stack []byte // stack of the goroutine, in the format of debug.Stack
}

// Error returns the value, and the stack from the origin of the panic. The worker records both on the message. The log
// contains the value and the location, but not the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s%v\n\n%s", panicPrefix, e.Value, e.origin())
}

const panicPrefix = "panic: "

// origin returns the stack without the frames above the panic. These frames belong to the recovery and are always the same.
func (e *PanicError) origin() []byte {
	_, below, found := bytes.Cut(e.Stack, []byte("\npanic("))
	if !found {
		return e.Stack
	}
	_, below, _ = bytes.Cut(below, []byte("\n\t")) // arguments of panic
	_, below, _ = bytes.Cut(below, []byte("\n"))   // file of panic
	return below
}

// Unwrap returns the value if it is an error, so that a handler can panic with an outcome.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrHandlerExited is the error of an attempt whose handler did not return, because it called runtime.Goexit (for example
// through testing.T.FailNow).
var ErrHandlerExited = errors.New("reprise: handler exited its goroutine without returning (runtime.Goexit)")

// outcome determines how the worker settles a delivery after an attempt.
type outcome int

const (
	succeeded   outcome = iota // ack
	failed                     // retry after the policy's delay, or park
	postponed                  // retry after the handler's delay, or park
	unretryable                // park
)

// verdict is the classification of a handler's error.
type verdict struct {
	outcome outcome
	delay   time.Duration // for postponed: the delay that the handler requested
	pause   time.Duration // duration of the worker's pause

	uncounted bool // for postponed: the attempt does not count
}

// classify returns the verdict for a handler's error.
func classify(err error) verdict {
	if err == nil {
		return verdict{outcome: succeeded}
	}
	// errors.As finds the outermost error of one type, but the outermost outcome of any type applies.
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *RetryAfterError:
			v := verdict{outcome: postponed, delay: max(0, x.Delay), uncounted: x.Uncounted}
			if x.Pause {
				v.pause = v.delay
			}
			return v
		case *ParkError:
			return verdict{outcome: unretryable}
		case interface{ Unwrap() []error }:
			return classifyJoined(x.Unwrap())
		}
	}
	return verdict{outcome: failed}
}

// classifyJoined combines the verdicts of joined errors. The attempt counts unless all errors are from Snooze. Park takes precedence, because a retry cannot succeed. Otherwise
// the longest delay and the longest pause apply.
func classifyJoined(errs []error) verdict {
	all := verdict{outcome: failed, uncounted: true}
	for _, err := range errs {
		v := classify(err)
		if v.outcome == unretryable {
			return v
		}
		if v.outcome == postponed {
			all.outcome, all.delay = postponed, max(all.delay, v.delay)
			all.pause = max(all.pause, v.pause)
		}
		all.uncounted = all.uncounted && v.uncounted
	}
	all.uncounted = all.uncounted && all.outcome == postponed
	return all
}

// classified returns the result for a handler's error. The methods of the error are user code, which may panic on a typed
// nil.
func classified(err error) (r result) {
	r.err = err
	bad := guard.Call("error of the handler", func() error {
		if r.verdict = classify(err); r.outcome != succeeded {
			r.text = err.Error()
			r.headers = annotations(err)
		}
		return nil
	})
	if bad != nil {
		return result{verdict: verdict{outcome: failed}, err: bad, text: bad.Error()}
	}
	return r
}

// annotations returns the headers that Annotate added to err. If several calls of Annotate set the same header, the
// outermost applies.
func annotations(err error) topology.Table {
	var all topology.Table
	add := func(headers map[string]any) {
		for k, v := range headers {
			if _, found := all[k]; !found {
				if all == nil {
					all = topology.Table{}
				}
				all[k] = v
			}
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *AnnotatedError:
			add(x.Headers)
		case interface{ Unwrap() []error }:
			for _, branch := range x.Unwrap() {
				add(annotations(branch))
			}
			return all
		}
	}
	return all
}

// errText is an error that contains only its string.
type errText string

func (e errText) Error() string { return string(e) }
