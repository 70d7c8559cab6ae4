package management

import (
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
)

// failure is an error response.
type failure struct {
	status int
	name   string
	reason any // a string, or a list of strings in some of RabbitMQ's responses
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
	notKept       = &failure{http.StatusServiceUnavailable, "unavailable", "the change was applied, but the disk has failed; the change will not survive a restart"}
	notYours      = notAuthorised("User not authorised to access object")
)

func badRequest(reason any) *failure { return &failure{http.StatusBadRequest, "bad_request", reason} }

func notAuthorised(reason string) *failure {
	return &failure{http.StatusUnauthorized, "not_authorised", reason}
}

// missingKeys returns RabbitMQ's error for a body in which required fields are missing.
func missingKeys(names ...string) *failure {
	for i, name := range names {
		names[i] = "{key_missing," + name + "}"
	}
	return badRequest("[" + strings.Join(names, ",") + "]")
}

// failureOf returns the error response for err. The status is 404 for the AMQP error NOT_FOUND, 401 for ACCESS_REFUSED,
// and 400 for any other error that is not a [failure].
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

// jsonName returns RabbitMQ's name for a JSON type.
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
