// Package management is the part of RabbitMQ's management HTTP API that tools use: the same paths, names of fields, status
// codes and error bodies (https://www.rabbitmq.com/docs/http-api-reference), answered from a [node.Node].
//
//	request ─► same origin? ─► who is it? ─► route ─► may they? ─► resource ─► filter, sort, page, columns ─► JSON
//
// # Who may do what
//
// Basic authentication against the node's users, over whatever the handler is served on. Without the tag administrator,
// monitoring, policymaker or management nobody gets in.
//
//	administrator  everything, in every virtual host
//	monitoring     all connections, channels and nodes; else as management
//	management     the virtual hosts they have permissions in, their own connections and channels; queues, exchanges and
//	               bindings as far as their permissions reach, which are those of AMQP
//
// RabbitMQ asks an administrator for permissions, too, before a queue or exchange is changed; an administrator, who can
// give themselves any, needs none here.
//
// # What is not in it
//
// Numbers that only an Erlang process has (reductions, garbage collection) are left out, as docs/compatibility.md lists.
// Policies, parameters, limits and topic permissions do not exist: their lists are empty, none is found, and making one is an
// error. A
// rate is the average between two looks at the same thing, five seconds apart at the least: nothing runs in between.
//
// # What it costs
//
// A list is made while it is written, one element after the other, and definitions are decoded in the same way. Messages
// that are asked for are in memory until they are written. Of a user's calls with a list, for messages, or with a large
// body, two are answered at a time, and the others wait. An answer that fails in the middle is cut off.
//
// Definitions are in RabbitMQ's format. [Import] refuses as a whole what has in it something that cannot be had here, such
// as a policy: a topology without it would do something else.
package management

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
)

// The names under which the node goes. A program asks for the version to know what it can ask of the broker, so that it
// is the version of the RabbitMQ this one does as.
const (
	NodeName = "reprise@localhost"
	Version  = "4.3.6"
	product  = "RabbitMQ"
)

// maxBody is how large the body of a request may be, which is RabbitMQ's limit for definitions.
const maxBody = 20 << 20

// Handler is the API. It is an [http.Handler], starts no goroutine, and needs no end.
type Handler struct {
	node      *node.Node
	listeners func() []net.Addr
	log       *slog.Logger
	rates     rates
	turns     turns
	mux       *http.ServeMux
	guarded   http.Handler
}

// New returns the API of a node. Listeners returns where it listens for AMQP.
func New(n *node.Node, listeners func() []net.Addr, log *slog.Logger) *Handler {
	h := &Handler{node: n, listeners: listeners, log: log, mux: http.NewServeMux()}
	h.routes()
	// A browser that is logged in must not be made to change something by another site's page.
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &failure{http.StatusForbidden, "forbidden", "cross-origin request"})
	}))
	h.guarded = origin.Handler(http.HandlerFunc(h.authenticate))
	return h
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case "/api":
		w.Header().Set("Location", indexPath)
		w.WriteHeader(http.StatusMovedPermanently)
	case indexPath:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, indexPage)
	default:
		h.guarded.ServeHTTP(w, r)
	}
}

// The page that RabbitMQ has below /api, for those who open it in a browser. It needs no password.
const (
	indexPath = "/api/index.html"
	indexPage = `<!DOCTYPE html>
<html lang="en">
<title>Management HTTP API</title>
<h1>Management HTTP API</h1>
<p>This is a Reprise broker. It has the endpoints of
<a href="https://www.rabbitmq.com/docs/http-api-reference">RabbitMQ's HTTP API</a>
that tools use, for example <a href="/api/overview">/api/overview</a> and <a href="/api/queues">/api/queues</a>.</p>
</html>
`
)

func (h *Handler) routes() {
	h.system()
	h.connections()
	h.exchanges()
	h.queues()
	h.bindings()
	h.vhosts()
	h.users()
	h.permissions()
	h.definitions()
	h.health()
	h.absent()
}

// call is a request by somebody who was recognised.
type call struct {
	*http.Request
	h    *Handler
	node *node.Node
	user access.User

	answer http.ResponseWriter
	done   func() // gives the turn back; nil: the call has none
}

// endpoint answers a call. An answer is written as JSON with status 200, unless it is one of those below or a scrape.
type endpoint func(*call) (any, error)

// The answers without a body.
type (
	created struct{ location string } // 201
	done    struct{}                  // 204
)

// stored is the answer to PUT.
func stored(existed bool) any {
	if existed {
		return done{}
	}
	return created{}
}

// handle adds an endpoint for those who have one of the tags that may. What is answered is on disk, if it is to be there.
func (h *Handler) handle(pattern string, may privilege, answer endpoint) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		user, _ := r.Context().Value(userKey{}).(access.User)
		c := &call{Request: r, h: h, node: h.node, user: user, answer: w}
		if err := may.check(user); err != nil {
			h.fail(w, r, err)
			return
		}
		defer c.end()
		err := c.begin()
		var value any
		if err == nil {
			value, err = answer(c)
		}
		if err == nil && r.Method != http.MethodGet && h.node.Sync(r.Context()) != nil {
			err = notKept
		}
		if err == nil {
			err = c.reply(w, value)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	})
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if check, ok := errors.AsType[failedCheck](err); ok {
		write(w, http.StatusServiceUnavailable, check)
		return
	}
	f := failureOf(err)
	h.log.Debug("management request refused", "method", r.Method, "path", r.URL.Path, "status", f.status, "reason", err)
	refuse(w, f)
}

// A mux takes a segment that is nothing but an escaped slash, as the virtual host "/" is in a path, for the end of the path,
// and finds no endpoint. So such a segment gets a second character on its way through the mux.
const (
	slashSegment = "%2F"
	markedSlash  = "/\x00"
)

// route returns the URL for the mux: without dot segments, with at most one slash at the end removed, and with escaped slashes
// marked. It returns false if a segment is empty: RabbitMQ has nothing there, and the mux would redirect.
func route(u *url.URL) (routed *url.URL, ok bool) {
	var segments []string
	for s := range strings.SplitSeq(strings.TrimSuffix(u.EscapedPath(), "/"), "/") {
		switch {
		case s == ".":
		case s == ".." && len(segments) > 0:
			segments = segments[:len(segments)-1]
		case strings.EqualFold(s, slashSegment):
			segments = append(segments, slashSegment+"%00")
		default:
			segments = append(segments, s)
		}
	}
	if len(segments) == 0 || slices.Contains(segments[1:], "") {
		return u, false
	}
	marked := *u
	marked.RawPath = strings.Join(segments, "/")
	path, err := url.PathUnescape(marked.RawPath)
	marked.Path = path
	return &marked, err == nil
}

// PathValue returns a wildcard of the path.
func (c *call) PathValue(name string) string {
	if value := c.Request.PathValue(name); value != markedSlash {
		return value
	}
	return "/"
}

// dispatch finds the endpoint. What the mux would say itself is said in the API's own way.
func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request) {
	routed, ok := route(r.URL)
	if !ok {
		nowhere(w, r)
		return
	}
	r.URL = routed // of a request that authenticate has copied
	handler, pattern := h.mux.Handler(r)
	if pattern != "" {
		h.mux.ServeHTTP(w, r)
		return
	}
	answer := &statusOnly{header: make(http.Header), status: http.StatusOK}
	handler.ServeHTTP(answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", answer.header.Get("Allow"))
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	nowhere(w, r)
}

// nowhere answers a request for a path that has no endpoint. RabbitMQ looks for a file there, which has no slash in its name.
func nowhere(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
	case strings.Contains(strings.ToUpper(r.URL.EscapedPath()), slashSegment):
		w.WriteHeader(http.StatusBadRequest)
	default:
		refuse(w, notFound)
	}
}

// statusOnly is a response of which nobody reads the body.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// decode reads the body, in which the needed fields must be present.
func (c *call) decode(v any, needed ...string) error {
	var body json.RawMessage
	err := json.NewDecoder(c.Body).Decode(&body)
	if err == io.EOF {
		body, err = json.RawMessage("{}"), nil
	}
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return wrongBody(err)
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(body, &given) // null has no fields
	needed = slices.DeleteFunc(needed, func(name string) bool { return len(given[name]) > 0 && string(given[name]) != "null" })
	if len(needed) > 0 {
		return missingKeys(needed...)
	}
	return nil
}

// wrongBody returns what RabbitMQ says of a body that cannot be read or decoded.
func wrongBody(err error) error {
	if problem, ok := errors.AsType[*failure](err); ok {
		return problem
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return badRequest("Exceeded HTTP request body size limit")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &failure{http.StatusRequestTimeout, "request_timeout", "the body of the request took too long to arrive"}
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return badRequest([]string{"not_" + jsonName(wrong.Type), wrong.Field})
	}
	return badRequest("not_json")
}
