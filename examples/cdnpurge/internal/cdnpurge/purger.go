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
	URL    string       // of the API, such as https://purge.example.com
	Client *http.Client // default http.DefaultClient
}

// StatusError is an answer of the CDN other than 2xx.
type StatusError struct {
	Code int
	Text string // what the CDN says about it
}

// Error names the code and what the CDN says, as in "507: queue is full".
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d: %s", e.Code, cmp.Or(e.Text, http.StatusText(e.Code)))
}

// temporary reports whether the same call may be answered otherwise later.
func (e *StatusError) temporary() bool {
	return e.Code >= 500 || e.Code == http.StatusTooManyRequests || e.Code == http.StatusRequestTimeout
}

// Handler returns the handler for a worker. A body that is no JSON array of
// strings is parked.
func (p *Purger) Handler() reprise.Handler {
	return reprise.JSON(func(ctx context.Context, names []string, m *reprise.Message) error {
		err := p.Purge(ctx, m.RoutingKey, names, m.MessageID)
		if refused, ok := errors.AsType[*StatusError](err); ok && !refused.temporary() {
			return reprise.Park(err)
		}
		return err
	})
}

// Purge asks the CDN, once, to purge what the names stand for, which are of one
// kind: url, directory or tag. By the id, if there is one, the CDN knows the same
// call when it comes again. The error is a *StatusError where the CDN has answered.
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
	if id != "" { // an empty key is one, too
		req.Header.Set("Idempotency-Key", id)
	}
	resp, err := cmp.Or(p.Client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // everything of use was read
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 == 2 {
		return nil // whatever came of the text: it is done
	}
	return &StatusError{Code: resp.StatusCode, Text: strings.TrimSpace(string(text))}
}
