package management

import (
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
)

// failure is an error that the client is told of.
type failure struct {
	status int
	name   string
	reason any // a text, or in some of RabbitMQ's answers a list of them
}

func (f *failure) Error() string { return f.name }

type failureBody struct {
	Error  string `json:"error"`
	Reason any    `json:"reason"`
}

func refuse(w http.ResponseWriter, f *failure) {
	write(w, f.status, failureBody{f.name, f.reason})
}

var (
	notFound      = &failure{http.StatusNotFound, "Object Not Found", "Not Found"}
	vhostNotFound = &failure{http.StatusNotFound, "not_found", "vhost_not_found"}
	invisible     = &failure{http.StatusNotFound, "not_found", "Not Found"}
	accessRefused = notAuthorised("Access refused.")
	notKept       = &failure{http.StatusServiceUnavailable, "unavailable", "done, but the disk has failed: it will not survive a restart"}
	notYours      = notAuthorised("User not authorised to access object")
)

func badRequest(reason any) *failure { return &failure{http.StatusBadRequest, "bad_request", reason} }

func notAuthorised(reason string) *failure {
	return &failure{http.StatusUnauthorized, "not_authorised", reason}
}

// missingKeys is what RabbitMQ says of a body that lacks something.
func missingKeys(names ...string) *failure {
	for i, name := range names {
		names[i] = "{key_missing," + name + "}"
	}
	return badRequest("[" + strings.Join(names, ",") + "]")
}

// failureOf finds the status for an error. What would close a channel is a bad request, but for what there is not and what
// one may not.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*exception.Error](err); ok {
		switch e.Code {
		case exception.NotFound:
			return &failure{http.StatusNotFound, "not_found", e.Text}
		case exception.AccessRefused:
			return accessRefused
		}
		return badRequest(e.Text)
	}
	return badRequest(err.Error())
}

// jsonName is what RabbitMQ calls the type that was wanted.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint64:
		return "integer"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "list"
	}
	return "map"
}
