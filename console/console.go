package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Console is an [http.Handler]. It starts no goroutine, and needs no end. What it was
// configured with stays so.
type Console struct {
	cfg Config // with defaults

	mux      *http.ServeMux
	handler  http.Handler // mux behind what holds for all requests
	sessions *sessions
	wrong    *throttle
}

// New returns a console, or the error of Config.Validate.
func New(cfg Config) (*Console, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Console{
		cfg:      cfg,
		sessions: newSessions(cfg.Clock),
		wrong:    newThrottle(cfg.Clock),
	}
	c.build(c.routes())
	return c, nil
}

func (c *Console) build(routes []route) {
	c.mux = http.NewServeMux()
	for _, r := range routes {
		c.mux.Handle(r.pattern(), c.serve(r))
	}
	c.handler = secured(c.sameOrigin(c.mux))
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// route is a line of the table of all there is. A handler that returns an error
// has written nothing yet.
type route struct {
	method string   // "": any
	path   string   // a pattern of http.ServeMux without method and host
	role   Role     // what it takes at the least
	body   int64    // most bytes of a request's body; 0: smallBody
	query  []string // the parameters that it takes
	blanks bool     // a form with fields that may be left empty leads there
	form   []string // the fields of the form that it takes
	handle func(*call) error
}

func (r *route) pattern() string { return strings.TrimSpace(r.method + " " + r.path) }

// isAPI reports whether errors are JSON.
func (r *route) isAPI() bool { return strings.HasPrefix(r.path, "/api/") }

func (c *Console) routes() []route {
	return slices.Concat(c.loginRoutes(), c.apiRoutes(), c.pageRoutes())
}

// serve finds out who asks, and lets those in who may.
func (c *Console) serve(r route) http.Handler {
	limit := r.body
	if limit == 0 {
		limit = smallBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		k := &call{Console: c, route: &r, w: w, r: req}
		err := k.enter()
		if err == nil {
			err = k.readParams()
		}
		if err == nil {
			req.Body = http.MaxBytesReader(w, req.Body, limit)
			err = r.handle(k)
		}
		if err != nil {
			k.fail(err)
		}
	})
}

// call is a request on its way through a handler.
type call struct {
	*Console
	route *route
	w     http.ResponseWriter
	r     *http.Request
	who   visitor

	params url.Values // of the address
}

// enter sets who, or returns why they may not.
func (c *call) enter() error {
	who, err := c.identify(c.w, c.r)
	if err == nil || c.route.role == Nobody && !isForeign(err) {
		c.who = who
		err = nil
	}
	if err != nil {
		return err
	}
	if c.who.role < c.route.role {
		return forbidden(c.who, c.route.role)
	}
	return nil
}
