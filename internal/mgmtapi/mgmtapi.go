// Package mgmtapi is a read-only client of the management HTTP API of RabbitMQ and of the embedded broker.
package mgmtapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer is the maximum size of a response in bytes.
const maxAnswer = 64 << 20

// Timeout is the timeout of a request if API.Client is nil.
const Timeout = 15 * time.Second

var defaultClient = &http.Client{Timeout: Timeout}

// API is the management API of a broker.
type API struct {
	URL      string // for example http://localhost:15672, with or without /api
	User     string // "": a request without authentication
	Password string
	VHost    string       // default: /
	Client   *http.Client // default: a client with a timeout
}

// Within returns the virtual host as the last segment of a path.
func (a API) Within() string { return "/" + url.PathEscape(cmp.Or(a.VHost, "/")) }

// StatusError reports a response with a status other than 200.
type StatusError struct {
	Host   string
	Code   int
	Status string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the management API at %s returned %s", e.Host, e.Status)
}

// Get requests a path below /api/ and decodes the JSON response into the value that into points to. An error contains the
// host, but not the password.
func (a API) Get(ctx context.Context, path string, into any) error {
	base := strings.TrimSuffix(strings.TrimSuffix(a.URL, "/"), "/api")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/"+path, nil)
	if err != nil {
		return fmt.Errorf("invalid URL of the management API: %w", err)
	}
	if a.User != "" {
		r.SetBasicAuth(a.User, a.Password)
	}
	answer, err := cmp.Or(a.Client, defaultClient).Do(r)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err
		}
		return fmt.Errorf("the management API at %s does not answer: %w", r.URL.Host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return &StatusError{r.URL.Host, answer.StatusCode, answer.Status}
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return a.undecoded(err)
	}
	return nil
}

// undecoded returns the error for a response that is not the expected JSON.
func (a API) undecoded(cause error) error {
	host := a.URL
	if u, err := url.Parse(a.URL); err == nil {
		host = u.Host // the URL may contain a password
	}
	return fmt.Errorf("cannot decode the response of the management API at %s: %w", host, cause)
}
