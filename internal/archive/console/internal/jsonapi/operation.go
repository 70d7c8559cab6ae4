package jsonapi

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Operation is a route of the API with its documentation.
type Operation struct {
	Method, Path string // Path is relative to /api/v1
	Role         access.Role
	Summary      string
	Notes        string // further sentences; optional
	Query        params.Params
	Endpoint
}

// Endpoint is a handler with the types of the bodies that it reads and writes.
type Endpoint struct {
	handle    func(*web.Call) error
	Request   Body         // without a type: no body
	Responses map[int]Body // by status
	limit     int64        // web.Route.Body
	long      bool         // web.Route.Long
}

// Body is a body of a request or a response. Type is nil unless a body is JSON.
type Body struct {
	Type  reflect.Type
	Media []string
}

func bodyOf[T any]() Body { return Body{reflect.TypeFor[T](), []string{"application/json"}} }

func media(types ...string) Body { return Body{Media: types} }

func (o Operation) route() web.Route {
	return web.Route{
		Method: o.Method, Path: base + o.Path, Role: o.Role, Body: o.limit, Query: o.Query.Names(), Long: o.long, Handle: o.handle,
	}
}

// responds returns an endpoint without a request body that responds with a T.
func responds[T any](status int, handle func(*web.Call) error) Endpoint {
	return Endpoint{handle: handle, Responses: map[int]Body{status: bodyOf[T]()}}
}

// answer returns an endpoint that responds with the result of f.
func answer[Out any](f func(*web.Call) (Out, error)) Endpoint {
	return responds[Out](http.StatusOK, func(c *web.Call) error {
		v, err := f(c)
		if err != nil {
			return err
		}
		return c.OK(v)
	})
}

// byID is like answer, but also passes the ID in the path to f.
func byID[Out any](f func(*web.Call, int64) (Out, error)) Endpoint {
	return answer(func(c *web.Call) (v Out, err error) {
		id, err := pathNumber(c, "id")
		if err != nil {
			return v, err
		}
		return f(c, id)
	})
}

// asked is like answer, but also passes the body of the request to f.
func asked[In, Out any](f func(*web.Call, In) (Out, error)) Endpoint {
	return reads[In](answer(func(c *web.Call) (v Out, err error) {
		var in In
		if err := c.Read(&in); err != nil {
			return v, err
		}
		return f(c, in)
	}))
}

// askedByID is like byID, but also passes the body of the request to f.
func askedByID[In, Out any](f func(*web.Call, int64, In) (Out, error)) Endpoint {
	return reads[In](byID(func(c *web.Call, id int64) (v Out, err error) {
		var in In
		if err := c.Read(&in); err != nil {
			return v, err
		}
		return f(c, id, in)
	}))
}

func reads[In any](e Endpoint) Endpoint { return e.takes(bodyOf[In]()) }

// takes sets the body of the request.
func (e Endpoint) takes(b Body) Endpoint {
	e.Request = b
	return e
}

// page returns an endpoint that responds with a page of a list. Its query includes pageParams.
func page[Out any](f func(*web.Call, store.Page) (Out, error)) Endpoint {
	return answer(func(c *web.Call) (v Out, err error) {
		p := store.Page{After: c.Params.Get("after")}
		if text := c.Params.Get("size"); text != "" {
			p.Size, err = strconv.Atoi(text)
			if err != nil || p.Size < 1 || p.Size > store.MaxPageSize {
				return v, fault.BadRequest("size must be an integer from 1 to "+strconv.Itoa(store.MaxPageSize)+": got "+brief.Quoted(text), "correct the parameter")
			}
		}
		return f(c, p)
	})
}

// takesLong lifts the limit of the time that the request may take.
func (e Endpoint) takesLong() Endpoint {
	e.long = true
	return e
}

// upTo sets the maximum size of the request's body.
func (e Endpoint) upTo(limit int64) Endpoint {
	e.limit = limit
	return e
}

func pathNumber(c *web.Call, name string) (int64, error) {
	text := c.R.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.BadRequest(brief.Quoted(text)+" is not a positive number", "copy the number from a list into the path")
	}
	return n, nil
}

// convert converts the elements of a list. The result is never nil, so that JSON contains [] instead of null.
func convert[From, To any](list []From, to func(From) To) []To {
	shown := make([]To, len(list))
	for i, v := range list {
		shown[i] = to(v)
	}
	return shown
}

// listed returns a list that is not nil, so that JSON contains [] instead of null.
func listed[T any](list []T) []T { return append([]T{}, list...) }
