// Package management implements the part of RabbitMQ's management HTTP API that tools use. It has the same paths, field
// names, status codes and error bodies (https://www.rabbitmq.com/docs/http-api-reference), and gets its data from a
// [node.Node].
//
//	request ─► check origin ─► authenticate ─► route ─► authorize ─► resource ─► filter, sort, page, columns ─► JSON
//
// # Permissions
//
// Clients use basic authentication with the users of the node. A user needs the tag administrator, monitoring,
// policymaker or management.
//
//	administrator  all objects, in all virtual hosts
//	monitoring     the node and its metrics; lists of all virtual hosts, connections and channels; otherwise the same as
//	               management
//	policymaker    parameters in these virtual hosts, and global parameters; otherwise the same as management
//	management     virtual hosts in which the user has permissions; connections and channels of the user; queues, exchanges
//	               and bindings, according to the AMQP permissions of the user
//
// In RabbitMQ, an administrator also needs permissions to change a queue or an exchange. This package does not check
// the permissions of administrators, because they can grant themselves any permission.
//
// # Limitations
//
// The package omits fields that describe Erlang processes (reductions, garbage collection); docs/compatibility.md lists
// them. Topic permissions are not supported: lists are empty, lookups fail with status 404, and requests to create an object
// fail. Parameters of federations and shovels are stored, but have no effect. The package does not sample in the background. A
// rate is therefore the average between two requests for the same object, at least five seconds apart.
//
// # Cost
//
// The handler builds the elements of a list one by one while it writes the list, and decodes the elements of definitions
// one by one. The messages in a response are in memory until the handler has written them. Calls that return a list,
// request messages or have a large body need a lot of memory. The handler processes at most two of these calls per user at a
// time, and further calls wait. If an error occurs in the middle of a response, the handler cuts the connection.
//
// Definitions have RabbitMQ's format. [Import] rejects definitions that contain an unsupported object, because the other
// objects would behave differently without it.
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
	"reflect"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
)

// Identity of the node in responses. Clients use the version to detect the features of the broker, so Version is the
// RabbitMQ version that this broker emulates.
const (
	NodeName = "reprise@localhost"
	Version  = "4.3.6"
	product  = "RabbitMQ"
)

// maxBody is the maximum size of a request body. It equals RabbitMQ's limit for definitions.
const maxBody = 20 << 20

// Handler is the [http.Handler] of the API. It does not start goroutines and does not need to be closed.
type Handler struct {
	node      *node.Node
	listeners func() []net.Addr
	log       *slog.Logger
	rates     rates
	turns     turns
	mux       *http.ServeMux
	guarded   http.Handler
}

// New returns the handler for the API of a node. The function listeners returns the addresses of the AMQP listeners.
func New(n *node.Node, listeners func() []net.Addr, log *slog.Logger) *Handler {
	h := &Handler{node: n, listeners: listeners, log: log, mux: http.NewServeMux()}
	h.routes()
	// Web pages of other sites must not be able to make changes through the browser of a logged-in user.
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

// The page for browsers. Like RabbitMQ, the handler serves it under /api without a password.
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
	h.policies()
	h.bindings()
	h.vhosts()
	h.users()
	h.permissions()
	h.limits()
	h.clock()
	h.parameters()
	h.definitions()
	h.health()
	h.topicPermissions()
}

// call is an authenticated request.
type call struct {
	*http.Request
	h    *Handler
	node *node.Node
	user access.User

	answer http.ResponseWriter
	done   func() // ends the turn of the call; nil if the call does not have a turn
}

// endpoint handles a call. The handler writes the result as JSON with status 200, unless the result is a scrape or a
// response without a body.
type endpoint func(*call) (any, error)

// Responses without a body.
type (
	created struct{ location string } // 201
	done    struct{}                  // 204
)

// stored returns the response to a successful PUT request: 204 if the object existed before, and 201 otherwise.
func stored(existed bool) any {
	if existed {
		return done{}
	}
	return created{}
}

// handle adds an endpoint for users with the privilege may. A request that can make changes gets a successful
// response only when the durable changes are on disk.
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

// A mux treats a path segment that consists only of an escaped slash, as for the virtual host "/", as the end of the
// path, and does not find the endpoint. The handler therefore appends a character to each such segment before it calls
// the mux.
const (
	slashSegment = "%2F"
	markedSlash  = "/\x00"
)

// route returns the URL for the mux. It removes dot segments and a slash at the end, and marks escaped slashes. If a
// segment is empty, route returns false: RabbitMQ does not have such paths, and the mux would redirect the client.
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

// PathValue returns the value of a path wildcard, with a marked slash restored.
func (c *call) PathValue(name string) string {
	if value := c.Request.PathValue(name); value != markedSlash {
		return value
	}
	return "/"
}

// dispatch calls the endpoint for a request. It replaces the error responses of the mux with RabbitMQ's error responses.
func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request) {
	routed, ok := route(r.URL)
	if !ok {
		noEndpoint(w, r)
		return
	}
	r.URL = routed // safe, because authenticate has made a shallow copy of the request
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
	noEndpoint(w, r)
}

// noEndpoint responds to a request for a path without an endpoint. It responds like RabbitMQ, which looks for a static
// file with a name that cannot contain an escaped slash.
func noEndpoint(w http.ResponseWriter, r *http.Request) {
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

// statusOnly is an [http.ResponseWriter] that records the status and the header, and discards the body.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// decode decodes the body into v. If any of the needed fields is missing, decode returns an error. The same applies to a
// field that is null, unless its tag has options.
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
	_ = json.Unmarshal(body, &given) // no error is possible, because v accepted the body; null has no fields, like {}
	needed = slices.DeleteFunc(needed, func(name string) bool { return len(given[name]) > 0 })
	if len(needed) > 0 {
		return missingKeys(needed...)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		if name := f.Tag.Get("json"); string(given[name]) == "null" { // which Unmarshal ignores
			return badRequest([]string{"null_not_allowed", name})
		}
	}
	return nil
}

// wrongBody returns RabbitMQ's error for a body that the handler cannot read or decode.
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
