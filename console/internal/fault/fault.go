// Package fault defines the error that a visitor of the console is told of, with advice,
// and turns the errors of package failed into it.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// Failure is an error that whoever asked is told of.
type Failure struct {
	Status     int
	Text       string
	Advice     string // what to do about it
	Param      string // the parameter of a filter that is wrong; "": none
	RetryAfter int    // seconds; 0: not said
}

func (f *Failure) Error() string { return f.Text }

func BadRequest(text, advice string) *Failure {
	return &Failure{Status: http.StatusBadRequest, Text: text, Advice: advice}
}

// BadFilter returns the failure of a filter that cannot be read.
func BadFilter(err error) *Failure {
	f := BadRequest(err.Error(), "correct the parameter")
	f.Param = paramOf(err)
	return f
}

// paramOf returns the name of the parameter that an error is about, or "".
func paramOf(err error) string {
	if e, ok := errors.AsType[*failed.FilterError](err); ok {
		return e.Param
	}
	if e, ok := errors.AsType[*params.Error](err); ok {
		return e.Name
	}
	return ""
}

// AsFailure finds out what to say of an error; nil if there is nothing that they
// should know of it.
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
	text := strings.TrimPrefix(err.Error(), "failed: ")
	switch {
	case errors.Is(err, failed.ErrNotFound):
		if missing, ok := errors.AsType[*failed.NotFoundError](err); ok {
			text = strings.TrimPrefix(missing.Error(), "failed: ")
		}
		return &Failure{Status: http.StatusNotFound, Text: text, Advice: "look at the list for what there is", Param: paramOf(err)}
	case errors.Is(err, failed.ErrState):
		return &Failure{Status: http.StatusConflict, Text: text, Advice: "nothing was changed: look at its state and try again"}
	case errors.Is(err, failed.ErrInvalid):
		return BadRequest(text, "correct the request; nothing was changed")
	case errors.Is(err, failed.ErrUnavailable):
		return &Failure{Status: http.StatusServiceUnavailable, Text: text, Advice: "try again when it is; failed messages stay in their queues meanwhile", RetryAfter: 5}
	case errors.Is(err, failed.ErrUnstorable):
		return &Failure{Status: http.StatusUnprocessableEntity, Text: text, Advice: "use types and depths that AMQP has"}
	}
	return nil
}
