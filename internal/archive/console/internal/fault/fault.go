// Package fault defines Failure, an error with advice for users of the console, and converts errors of other packages
// to Failures.
package fault

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
)

// Failure is an error that the console shows to the user.
type Failure struct {
	Status     int
	Text       string
	Advice     string // how to correct the error
	Param      string // the invalid parameter of a filter, or ""
	RetryAfter int    // in seconds, or 0
}

func (f *Failure) Error() string { return f.Text }

func BadRequest(text, advice string) *Failure {
	return &Failure{Status: http.StatusBadRequest, Text: text, Advice: advice}
}

// BadFilter returns the failure for an invalid filter.
func BadFilter(err error) *Failure {
	f := BadRequest(err.Error(), "correct the parameter")
	f.Param = paramOf(err)
	return f
}

// paramOf returns the name of the invalid parameter, or "".
func paramOf(err error) string {
	if e, ok := errors.AsType[*failed.FilterError](err); ok {
		return e.Param
	}
	if e, ok := errors.AsType[*params.Error](err); ok {
		return e.Name
	}
	return ""
}

// AsFailure converts err to a Failure. It returns nil for an internal error, which users must not see.
func AsFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Failure{
			Status: http.StatusRequestEntityTooLarge,
			Text:   "the request is too large",
			Advice: fmt.Sprintf("send at most %d bytes", e.Limit),
		}
	}
	text := err.Error()
	switch {
	case errors.Is(err, failed.ErrNotFound):
		if missing, ok := errors.AsType[*failed.NotFoundError](err); ok {
			text = missing.Error()
		}
		return &Failure{Status: http.StatusNotFound, Text: text, Advice: "see the list", Param: paramOf(err)}
	case errors.Is(err, failed.ErrState):
		return &Failure{Status: http.StatusConflict, Text: text, Advice: "nothing was changed: check the current state and try again"}
	case errors.Is(err, failed.ErrInvalid):
		return BadRequest(text, "correct the request; nothing was changed")
	case errors.Is(err, store.ErrUnavailable):
		return &Failure{Status: http.StatusServiceUnavailable, Text: text, Advice: "try again later; failed messages stay in their queues until then", RetryAfter: 5}
	case errors.Is(err, failed.ErrUnstorable):
		return &Failure{Status: http.StatusUnprocessableEntity, Text: text, Advice: "use only types that AMQP supports, with less nesting"}
	}
	return nil
}
