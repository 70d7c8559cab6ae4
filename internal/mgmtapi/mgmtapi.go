// Package mgmtapi is a client of the management HTTP API of RabbitMQ and of the embedded broker.
package mgmtapi

import (
	"bytes"
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

// VirtualHost returns the virtual host.
func (a API) VirtualHost() string { return cmp.Or(a.VHost, "/") }

// Within returns the virtual host as the last segment of a path.
func (a API) Within() string { return "/" + url.PathEscape(a.VirtualHost()) }

// StatusError reports a response with a status other than 200 or, for a change, another status that does not mean success.
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
	answer, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return &StatusError{answer.Request.URL.Host, answer.StatusCode, answer.Status}
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return a.undecoded(err)
	}
	return nil
}

// Put sends a value as JSON to a path below /api/.
func (a API) Put(ctx context.Context, path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return a.change(ctx, http.MethodPut, path, text)
}

// Delete deletes the object with a path below /api/. It returns nil if the object does not exist.
func (a API) Delete(ctx context.Context, path string) error {
	err := a.change(ctx, http.MethodDelete, path, nil)
	if status, ok := errors.AsType[*StatusError](err); ok && status.Code == http.StatusNotFound {
		return nil
	}
	return err
}

func (a API) change(ctx context.Context, method, path string, body []byte) error {
	answer, err := a.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return &StatusError{answer.Request.URL.Host, answer.StatusCode, answer.Status}
	}
	return nil
}

func (a API) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	base := strings.TrimSuffix(strings.TrimSuffix(a.URL, "/"), "/api")
	r, err := http.NewRequestWithContext(ctx, method, base+"/api/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("invalid URL of the management API: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.User != "" {
		r.SetBasicAuth(a.User, a.Password)
	}
	answer, err := cmp.Or(a.Client, defaultClient).Do(r)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err
		}
		return nil, fmt.Errorf("the management API at %s does not answer: %w", r.URL.Host, err)
	}
	answer.Request = r // also if the transport does not set it, or after a redirect
	return answer, nil
}

// undecoded returns the error for a response that is not the expected JSON.
func (a API) undecoded(cause error) error {
	host := a.URL
	if u, err := url.Parse(a.URL); err == nil {
		host = u.Host // the URL may contain a password
	}
	return fmt.Errorf("cannot decode the response of the management API at %s: %w", host, cause)
}
