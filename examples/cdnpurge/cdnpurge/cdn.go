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

// CDN is a stand-in for Akamai's Fast Purge API v3.
//
//	POST /ccu/v3/{action}/{kind}/{network}   {"objects": […]}: 201, or 507 "queue is full"
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

	// Credentials, if set, must have signed each request. Default: requests can be unsigned.
	Credentials *Credentials

	// Answered, if set, receives the objects and the response status of each valid request. CDN does not call it
	// concurrently.
	Answered func(objects []json.RawMessage, status int)

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
	objects, status, text := c.validate(r)
	if status == http.StatusCreated {
		status, text = c.enqueue(objects)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(map[string]any{"httpStatus": status, "detail": text})
}

// enqueue adds all objects to the queue, or none if the queue has no room for them.
func (c *CDN) enqueue(objects []json.RawMessage) (status int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work()
	status, text = http.StatusCreated, "Request accepted"
	if n := float64(len(objects)); c.length+n > float64(c.Room) {
		status, text = http.StatusInsufficientStorage, "queue is full"
	} else {
		c.length += n
	}
	if c.Answered != nil {
		c.Answered(objects, status)
	}
	return status, text
}

// validate checks a request, but not whether the queue has room. It returns 201 for a valid request.
func (c *CDN) validate(r *http.Request) (objects []json.RawMessage, status int, text string) {
	path := strings.Split(r.URL.Path, "/") // "", ccu, v3, action, kind, network
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	var request struct{ Objects []json.RawMessage }
	switch {
	case len(path) != 6 || path[1] != "ccu" || path[2] != "v3" || !slices.Contains(Kinds, path[4]):
		return nil, http.StatusNotFound, "use /ccu/v3/invalidate/{url, cpcode or tag}/production"
	case r.Method != http.MethodPost:
		return nil, http.StatusMethodNotAllowed, "use POST"
	case len(body) > maxBody:
		return nil, http.StatusRequestEntityTooLarge, "the body must have at most 50,000 bytes"
	case c.Credentials != nil && !c.Credentials.verify(r, body):
		return nil, http.StatusUnauthorized, "the signature does not match"
	case err != nil || json.Unmarshal(body, &request) != nil || len(request.Objects) == 0:
		return nil, http.StatusBadRequest, "the body must have at least one object"
	}
	return request.Objects, http.StatusCreated, ""
}
