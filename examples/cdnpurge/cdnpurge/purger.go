package cdnpurge

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

	"github.com/reprisemq/reprise"
)

// Purger calls the CDN's REST API. It is safe for concurrent use.
type Purger struct {
	URL    string       // URL of the API, such as https://purge.example.com
	Client *http.Client // default: http.DefaultClient
}

// StatusError is returned if the CDN responds with a status other than 2xx.
type StatusError struct {
	Code int
	Text string // the body of the response
}

// Error returns the code and the text, as in "507: queue is full".
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d: %s", e.Code, cmp.Or(e.Text, http.StatusText(e.Code)))
}

// temporary reports whether a retry of the call can succeed.
func (e *StatusError) temporary() bool {
	return e.Code >= 500 || e.Code == http.StatusTooManyRequests || e.Code == http.StatusRequestTimeout
}

// Handler returns the handler for a worker. The handler parks a message if its body is not a JSON array of strings, or
// if the CDN responds with a permanent error.
func (p *Purger) Handler() reprise.Handler {
	return reprise.JSON(func(ctx context.Context, names []string, m *reprise.Message) error {
		err := p.Purge(ctx, m.RoutingKey, names, m.MessageID)
		if refused, ok := errors.AsType[*StatusError](err); ok && !refused.temporary() {
			return reprise.Park(err)
		}
		return err
	})
}

// Purge calls the CDN once to purge the named objects, which all have the same kind: url, directory or tag. The CDN
// recognizes a repeated call by the ID; an empty ID disables this. If the CDN responds with a status other than 2xx,
// the error is a *StatusError.
func (p *Purger) Purge(ctx context.Context, kind string, names []string, id string) error {
	body, err := json.Marshal(names)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/purge/"+url.PathEscape(kind), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if id != "" { // the CDN would treat an empty key as a valid key
		req.Header.Set("Idempotency-Key", id)
	}
	resp, err := cmp.Or(p.Client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the response was read
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 == 2 {
		return nil // even if the body could not be read
	}
	return &StatusError{Code: resp.StatusCode, Text: strings.TrimSpace(string(text))}
}
