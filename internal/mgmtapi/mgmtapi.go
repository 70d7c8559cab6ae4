// Package mgmtapi asks a broker's management HTTP API: RabbitMQ's, or that of the
// embedded broker.
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

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 20

// Timeout is how long an answer is waited for, where an API has no client of its own.
const Timeout = 15 * time.Second

var defaultClient = &http.Client{Timeout: Timeout}

// API is a broker's.
type API struct {
	URL            string // such as http://localhost:15672; a path /api at its end is left out
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

// Get reads the answer to a path below /api/ into what is JSON. Its errors name the
// host, and no password.
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
