package cdnpurge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// requestTimeout limits the duration of a request.
const requestTimeout = 30 * time.Second

// Purger calls Akamai's Fast Purge API v3. It is safe for concurrent use.
type Purger struct {
	URL         string       // https://akab-….purge.akamaiapis.net
	Credentials *Credentials // default: requests are not signed, for CDN without Credentials
	Action      string       // invalidate or delete; default: invalidate
	Network     string       // production or staging; default: production
	Client      *http.Client // default: http.DefaultClient

	mu      sync.Mutex
	waiting map[string]*batch        // by kind
	turns   map[string]chan struct{} // by kind; a request occupies its turn
}

// StatusError is returned if the API responds with a status other than 2xx.
type StatusError struct {
	Code int
	Text string
}

// Error returns the code and the text, as in "507: queue is full".
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d: %s", e.Code, cmp.Or(e.Text, http.StatusText(e.Code)))
}

// Handler returns the handler for a worker. The body of a message is a JSON array of objects, and its routing key is
// their kind.
func (p *Purger) Handler() reprise.Handler {
	return reprise.JSON(func(ctx context.Context, objects []json.RawMessage, m *reprise.Delivery) error {
		return p.Purge(ctx, m.RoutingKey, objects)
	})
}

// Purge purges objects, which all have the same kind: JSON strings with URLs or cache tags, or CP codes as JSON numbers.
// Concurrent calls share requests, and more objects than a request permits are divided. If the API responds with a
// status other than 2xx, the error is a *StatusError: inside a reprise.ParkError if the API would refuse each repetition,
// and inside the result of reprise.PauseFor if the rate limit is exceeded. After an error, a part of the objects may be
// purged. A repetition is harmless.
func (p *Purger) Purge(ctx context.Context, kind string, objects []json.RawMessage) error {
	if !slices.Contains(Kinds, kind) || len(objects) == 0 {
		return reprise.Park(fmt.Errorf("the kind must be one of %s, with at least one object: got %q with %d", strings.Join(Kinds, ", "), kind, len(objects)))
	}
	for chunk := range chunks(kind, objects) {
		if err := p.share(ctx, kind, chunk); err != nil {
			return err
		}
	}
	return nil
}

// post sends one request.
func (p *Purger) post(ctx context.Context, kind string, objects []json.RawMessage) error {
	body := requestBody(objects)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	url := fmt.Sprintf("%s/ccu/v3/%s/%s/%s", p.URL, cmp.Or(p.Action, "invalidate"), kind, cmp.Or(p.Network, "production"))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.Credentials != nil {
		p.Credentials.sign(req, body, time.Now(), rand.Text())
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
	return refusal(resp, text, len(objects))
}

// refusal returns the error for a response. An error of the credentials or the permissions (401, 403) affects all
// messages, and a person corrects it, so messages are retried.
func refusal(resp *http.Response, text []byte, objects int) error {
	err := &StatusError{Code: resp.StatusCode, Text: problem(text)}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		return reprise.PauseFor(refill(resp.Header, objects), err)
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusUnauthorized, code == http.StatusForbidden:
		return err
	}
	return reprise.Park(err)
}

// problem returns the text of a response for the failed queue: title, detail and support ID of a problem document.
func problem(body []byte) string {
	var d struct{ Title, Detail, SupportID string }
	if json.Unmarshal(body, &d) != nil || d.Title+d.Detail == "" {
		return strings.TrimSpace(string(body))
	}
	texts := []string{d.Title, d.Detail}
	if d.SupportID != "" {
		texts = append(texts, "support ID "+d.SupportID)
	}
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// refill returns the time until Akamai's token buckets, one for requests and one for objects, have the tokens for a
// request that was refused. Akamai recommends at least five seconds.
func refill(h http.Header, objects int) time.Duration {
	seconds := 5.0
	for suffix, need := range map[string]int{"": 1, "-Objects": objects} {
		remaining, _ := strconv.ParseFloat(h.Get("X-Ratelimit-Remaining"+suffix), 64)
		rate, _ := strconv.ParseFloat(h.Get("X-Ratelimit-Limit-Per-Second"+suffix), 64)
		if missing := float64(need) - remaining; rate > 0 && missing > 0 {
			seconds = max(seconds, missing/rate)
		}
	}
	return time.Duration(min(seconds, 600) * float64(time.Second))
}
