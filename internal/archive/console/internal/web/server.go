// Package web routes requests to their handlers. It checks origin, role and parameters, decodes forms and JSON, and
// writes JSON and errors. A [Call] gives a handler access to the archive, without the data that the visitor may not
// see. Packages jsonapi and pages contain the handlers.
package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/loglimit"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Server passes each request to the handler of its route, if the visitor has the required role. Routes and addresses in Go
// code do not contain Config.Prefix: Build adds it to routes, Redirect to redirects, and the templates to links.
type Server struct {
	Config

	Guard    *access.Guard
	Figures  *figures.Broker
	FailPage func(*Call, *fault.Failure) // writes an error page

	loggedUnavailable loglimit.Limit

	mux     *http.ServeMux
	handler http.Handler // the mux, behind the checks for all requests
}

// Build installs the routes.
func (s *Server) Build(routes []Route) {
	s.mux = http.NewServeMux()
	for _, r := range routes {
		method := strings.TrimSuffix(r.Pattern(), r.Path)
		s.mux.Handle(method+s.Prefix+r.Path, s.serve(r))
	}
	if s.Prefix != "" {
		s.mux.Handle("/", http.HandlerFunc(s.withoutPrefix))
	}
	s.handler = secured(s.sameOrigin(s.mux))
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// withoutPrefix redirects requests for / to the prefix, and refuses all other requests without the prefix.
func (s *Server) withoutPrefix(w http.ResponseWriter, r *http.Request) {
	c := &Call{Server: s, route: &Route{Path: r.URL.Path}, W: w, R: r}
	if r.URL.Path == "/" && access.IsSafe(r.Method) {
		c.Redirect("/")
		return
	}
	c.fail(&fault.Failure{
		Status: http.StatusNotFound,
		Text:   "path must start with " + s.Prefix,
		Advice: "add the prefix to the URL; a proxy must not remove it",
	})
}

// Routed reports whether a request matches a route whose pattern contains part.
func (s *Server) Routed(r *http.Request, part string) bool {
	_, pattern := s.mux.Handler(r)
	return strings.Contains(pattern, part)
}

// Route configures a route. A handler that returns an error must not have written a response.
type Route struct {
	Method string      // "": any
	Path   string      // a pattern of http.ServeMux without method and host
	Role   access.Role // the lowest permitted role
	Body   int64       // maximum size of the request's body in bytes; 0: SmallBody
	Query  []string
	Blanks bool     // permits empty parameters, because a form with optional fields submits to this route
	Form   []string // form fields that the route accepts
	Long   bool     // a GET request that may take longer than sqlkit.ReadLimit
	Handle func(*Call) error
}

func (r *Route) Pattern() string { return strings.TrimSpace(r.Method + " " + r.Path) }

// IsAPI reports whether the errors of the route are JSON.
func (r *Route) IsAPI() bool { return strings.HasPrefix(r.Path, "/api/") }

func (s *Server) serve(r Route) http.Handler {
	limit := cmp.Or(r.Body, SmallBody)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if access.IsSafe(req.Method) && !r.Long {
			// The limit of a query is not enough, because a request has several queries.
			ctx, cancel := context.WithTimeout(req.Context(), sqlkit.ReadLimit)
			defer cancel()
			req = req.WithContext(ctx)
		}
		c := &Call{Server: s, route: &r, W: w, R: req}
		err := c.authorize()
		if err == nil {
			err = c.readParams()
		}
		if err == nil {
			req.Body = http.MaxBytesReader(w, req.Body, limit)
			err = c.claimKey()
		}
		if err == nil {
			err = r.Handle(c)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// Call is a request and its response, with the visitor and the server.
type Call struct {
	*Server
	W   http.ResponseWriter
	R   *http.Request
	Who access.Visitor

	Params      url.Values // the query parameters
	Unavailable bool       // the request has failed because the archive does not respond
	route       *Route
}

// claimKey returns an error if an earlier request had the same Idempotency-Key. The header is optional, and is only
// used for requests that change data through the API. The forms of pages contain the field submission instead.
func (c *Call) claimKey() error {
	keys := c.R.Header.Values("Idempotency-Key")
	if len(keys) == 0 || !c.route.IsAPI() || access.IsSafe(c.R.Method) {
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > 100 {
		return fault.BadRequest("the header Idempotency-Key must have one value of 1 to 100 bytes", "send a random string; nothing was changed")
	}
	err := c.Archive.ClaimSubmission(c.R.Context(), keys[0])
	if errors.Is(err, failed.ErrState) {
		return &fault.Failure{
			Status: http.StatusConflict, Text: "the Idempotency-Key was already used; nothing was changed",
			Advice: "see the audit log for the result of the first request; to repeat the action, send a new key",
		}
	}
	return err
}

// authorize sets Who, or returns the reason why the visitor may not use the route.
func (c *Call) authorize() error {
	who, err := c.Guard.Identify(c.W, c.R, c.route.Role > access.Nobody)
	if err != nil && (c.route.Role > access.Nobody || access.IsForeign(err)) {
		return err
	}
	c.Who = who
	if who.Role < c.route.Role {
		return access.Forbidden(who, c.route.Role)
	}
	return nil
}
