package cdnpurge

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds lists the kinds of objects that CDN accepts. They are also the routing keys
// of the messages.
var Kinds = []string{"url", "directory", "tag"}

// CDN is a stand-in for the REST API of a CDN.
//
//	POST /purge/{kind}   a JSON array of names: 201, or 507 "queue is full"
//
// CDN stores accepted purges in a queue of limited capacity, and processes the queue at the rate that the function Rate
// returns. In the peak hours of its customers, the rate is low and the queue is full. The zero value refuses all
// purges.
type CDN struct {
	// Room is the capacity of the queue, in purges.
	Room int

	// Rate returns the number of purges that CDN processes per hour at a given time. Between two requests, CDN calls
	// Rate for each minute, or part of a minute, in which the queue is not empty. Required if Room is not 0.
	Rate func(time.Time) float64

	// Answered, if set, receives the idempotency key and the response status of each request. CDN does not call it
	// concurrently.
	Answered func(id string, status int)

	mu     sync.Mutex
	length float64 // length of the queue as of the time in the field at
	at     time.Time
}

// Length returns the number of purges in the queue, rounded.
func (c *CDN) Length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work()
	return int(c.length + 0.5)
}

// work removes the purges that CDN has processed since the last call.
func (c *CDN) work() {
	const step = time.Minute
	now := time.Now()
	for c.length > 0 && c.at.Before(now) {
		d := min(step, now.Sub(c.at))
		c.length = max(0, c.length-c.Rate(c.at)*d.Hours())
		c.at = c.at.Add(d)
	}
	c.at = now
}

// ServeHTTP accepts or refuses a purge.
func (c *CDN) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, text := c.validate(r)
	c.mu.Lock()
	if status == http.StatusCreated {
		if c.work(); c.length+1 > float64(c.Room) {
			status, text = http.StatusInsufficientStorage, "queue is full"
		} else {
			c.length++
		}
	}
	if c.Answered != nil {
		c.Answered(r.Header.Get("Idempotency-Key"), status)
	}
	c.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may have disconnected
}

// validate checks a request, but not whether the queue has room. It returns 201 for a valid request.
func (c *CDN) validate(r *http.Request) (status int, text string) {
	kind, found := strings.CutPrefix(r.URL.Path, "/purge/")
	var names []string
	switch {
	case !found || !slices.Contains(Kinds, kind):
		return http.StatusNotFound, "use /purge/url, /purge/directory or /purge/tag"
	case r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, "use POST"
	case json.NewDecoder(r.Body).Decode(&names) != nil || len(names) == 0:
		return http.StatusBadRequest, "the body has to be a JSON array of names, at least one"
	}
	return http.StatusCreated, "queued"
}
