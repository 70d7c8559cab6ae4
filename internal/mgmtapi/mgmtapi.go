// Package mgmtapi reads the management HTTP API of RabbitMQ or of the embedded broker.
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

// maxAnswer is the maximum size of an answer.
const maxAnswer = 64 << 20

// Timeout is the timeout of a request if the API has no client.
const Timeout = 15 * time.Second

var defaultClient = &http.Client{Timeout: Timeout}

// API is the management API of a broker.
type API struct {
	URL            string // such as http://localhost:15672, with or without /api
	User, Password string // "" for none
	Client         *http.Client
}

// StatusError is an answer other than 200.
type StatusError struct {
	Host   string
	Code   int
	Status string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the management API at %s answers %s", e.Host, e.Status)
}

// Get decodes the JSON answer of a path below /api/. Its errors contain the host, but no password.
func (a API) Get(ctx context.Context, path string, into any) error {
	base := strings.TrimSuffix(strings.TrimSuffix(a.URL, "/"), "/api")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/"+path, nil)
	if err != nil {
		return fmt.Errorf("the URL of the management API: %w", err)
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
		return fmt.Errorf("the management API at %s answers something else than it should: %w", r.URL.Host, err)
	}
	return nil
}
