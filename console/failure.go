package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// failure is an error that whoever asked is told of.
type failure struct {
	status     int
	text       string
	advice     string // what to do about it
	retryAfter int    // seconds; 0: not said
}

func (f *failure) Error() string { return f.text }

func badRequest(text, advice string) *failure {
	return &failure{status: http.StatusBadRequest, text: text, advice: advice}
}

// asFailure finds out what to say of an error; nil if there is nothing that they
// should know of it.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &failure{
			status: http.StatusRequestEntityTooLarge,
			text:   "the request is too large",
			advice: fmt.Sprintf("send at most %d bytes", e.Limit),
		}
	}
	text := strings.TrimPrefix(err.Error(), "failed: ")
	switch {
	case errors.Is(err, failed.ErrNotFound):
		return &failure{status: http.StatusNotFound, text: text, advice: "look at the list for what there is"}
	case errors.Is(err, failed.ErrState):
		return &failure{status: http.StatusConflict, text: text, advice: "nothing was changed: look at its state and try again"}
	case errors.Is(err, failed.ErrInvalid):
		return badRequest(text, "correct the request; nothing was changed")
	case errors.Is(err, failed.ErrUnavailable):
		return &failure{status: http.StatusServiceUnavailable, text: text, advice: "try again when it is; failed messages stay in their queues meanwhile", retryAfter: 5}
	case errors.Is(err, failed.ErrUnstorable):
		return &failure{status: http.StatusUnprocessableEntity, text: text, advice: "use types and depths that AMQP has"}
	}
	return nil
}

// fail answers with an error.
func (c *call) fail(err error) {
	f := asFailure(err)
	if f == nil {
		f = &failure{status: http.StatusInternalServerError, text: "something went wrong on our side", advice: "the console's log says what; try again"}
		if c.r.Context().Err() == nil || !errors.Is(err, context.Canceled) {
			c.cfg.Logger.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "actor", c.who.actor, "err", err)
		}
	}
	if errors.Is(err, failed.ErrUnavailable) {
		c.cfg.Logger.Warn("archive unavailable", "method", c.r.Method, "path", c.r.URL.Path, "actor", c.who.actor, "err", err)
	}
	if f.retryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	switch {
	case c.route.isAPI():
		if f.status == http.StatusUnauthorized {
			c.w.Header().Set("WWW-Authenticate", `Bearer realm="reprise"`)
		}
		_ = c.write(f.status, api.Error{Text: f.text, Advice: f.advice})
	case f == errNotLoggedIn && isSafe(c.r.Method) && strings.Contains(c.r.Header.Get("Accept"), "text/html"):
		http.Redirect(c.w, c.r, "/login?next="+url.QueryEscape(c.r.URL.RequestURI()), http.StatusSeeOther)
	default:
		c.failPage(f)
	}
}
