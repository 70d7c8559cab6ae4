package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// fail writes an error, as JSON or as a page.
func (c *Call) fail(err error) {
	f := fault.AsFailure(err)
	if f == nil {
		f = &fault.Failure{Status: http.StatusInternalServerError, Text: "internal error", Advice: "see the log of the console for the cause, and try again"}
		if c.R.Context().Err() == nil || !errors.Is(err, context.Canceled) {
			c.Logger.Error("request failed", "method", c.R.Method, "path", c.R.URL.Path, "actor", c.Who.Actor, "err", err)
		}
	}
	if c.Unavailable = errors.Is(err, store.ErrUnavailable); c.Unavailable {
		c.loggedUnavailable.Log(c.Logger, slog.LevelWarn, "archive unavailable", "method", c.R.Method, "path", c.R.URL.Path, "actor", c.Who.Actor, "err", err)
	}
	if f.RetryAfter > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	switch {
	case c.route.IsAPI():
		if f.Status == http.StatusUnauthorized {
			c.W.Header().Set("WWW-Authenticate", `Bearer realm="reprise"`)
		}
		_ = c.Write(f.Status, api.Error{Text: f.Text, Advice: f.Advice})
	// A browser may send a token that a proxy added, so only the login page helps.
	case (f.Status == http.StatusUnauthorized || f.Status == http.StatusTooManyRequests) && access.IsSafe(c.R.Method) && strings.Contains(c.R.Header.Get("Accept"), "text/html"):
		c.Redirect("/login?next=" + url.QueryEscape(c.Address()))
	default:
		c.Server.FailPage(c, f)
	}
}
