// Package web leads a request to its handler: it checks origin, role and parameters,
// reads forms and JSON, answers with JSON and errors, and gives handlers the archive as the
// visitor may see it ([Call]). Packages jsonapi and pages are made of its handlers.
package web

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/console/internal/access"
	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/history"
	"github.com/reprisemq/reprise/ledger"
)

// Server passes each request to the handler of its route, if the visitor has the role.
// All fields are required but Prefix, Replayer, Routing, Ledger, Fleet, Rescheduler, History and Broker.
type Server struct {
	// Prefix precedes all paths, such as /reprise. Routes, and the addresses in Go code, are
	// without it: Build adds it to the routes, Redirect to redirects, and templates to links.
	Prefix string

	Archive  *failed.Archive
	Replayer interface{ Wake() }
	Routing  failed.Routing
	Ledger   *ledger.Ledger
	Fleet    Fleet                  // nil: workers are not listed
	History  *history.History       // nil: none is recorded
	Broker   func() *reprise.Client // nil: there is none

	Rescheduler Rescheduler // nil: waiting messages are not acted on

	Clock  func() time.Time
	Logger *slog.Logger

	Guard    *access.Guard
	FailPage func(*Call, *fault.Failure) // answers with an error where the answer is a page

	mux     *http.ServeMux
	handler http.Handler // mux behind the checks for all requests
}

// Build sets the routes.
func (s *Server) Build(routes []Route) {
	s.mux = http.NewServeMux()
	for _, r := range routes {
		method := strings.TrimSuffix(r.Pattern(), r.Path)
		s.mux.Handle(method+s.Prefix+r.Path, s.serve(r))
	}
	if s.Prefix != "" {
		s.mux.Handle("/", http.HandlerFunc(s.outside))
	}
	s.handler = secured(s.sameOrigin(s.mux))
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// outside answers requests without the prefix.
func (s *Server) outside(w http.ResponseWriter, r *http.Request) {
	c := &Call{Server: s, route: &Route{Path: r.URL.Path}, W: w, R: r}
	if r.URL.Path == "/" && access.IsSafe(r.Method) {
		c.Redirect("/")
		return
	}
	c.fail(&fault.Failure{
		Status: http.StatusNotFound,
		Text:   "the console has the path prefix " + s.Prefix,
		Advice: "add it to the URL; a proxy must keep it",
	})
}

// Routed reports whether a request would reach a route whose pattern contains part.
func (s *Server) Routed(r *http.Request, part string) bool {
	_, pattern := s.mux.Handler(r)
	return strings.Contains(pattern, part)
}

// Route is a row of the table of routes. A handler that returns an error has written
// nothing.
type Route struct {
	Method string      // "": any
	Path   string      // a pattern of http.ServeMux without method and host
	Role   access.Role // the lowest that may use it
	Body   int64       // limit of the request's body in bytes; 0: smallBody
	Query  []string
	Blanks bool     // parameters may be empty, since a form with optional fields leads there
	Form   []string // fields of the form
	Handle func(*Call) error
}

func (r *Route) Pattern() string { return strings.TrimSpace(r.Method + " " + r.Path) }

// IsAPI reports whether errors are JSON.
func (r *Route) IsAPI() bool { return strings.HasPrefix(r.Path, "/api/") }

func (s *Server) serve(r Route) http.Handler {
	limit := cmp.Or(r.Body, SmallBody)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := &Call{Server: s, route: &r, W: w, R: req}
		err := c.enter()
		if err == nil {
			err = c.readParams()
		}
		if err == nil {
			req.Body = http.MaxBytesReader(w, req.Body, limit)
			err = r.Handle(c)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// Call is a request on its way through a handler.
type Call struct {
	*Server
	W   http.ResponseWriter
	R   *http.Request
	Who access.Visitor

	Params url.Values // of the address
	route  *Route
}

// enter sets who, or returns why the visitor may not use the route.
func (c *Call) enter() error {
	who, err := c.Guard.Identify(c.W, c.R)
	if err != nil && (c.route.Role > access.Nobody || access.IsForeign(err)) {
		return err
	}
	c.Who = who
	if who.Role < c.route.Role {
		return access.Forbidden(who, c.route.Role)
	}
	return nil
}
