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

// Kinds are what the stand-in can purge, and the routing keys of the messages.
var Kinds = []string{"url", "directory", "tag"}

// CDN is a stand-in for the REST API of a CDN.
//
//	POST /purge/{kind}   a JSON array of names: 201, or 507 "queue is full"
//
// What it has accepted it puts into a queue, from which it works it off. The queue
// has room for so many, and at the hours at which all its customers purge, little
// of the work is ours: then it is full. The zero value accepts nothing.
type CDN struct {
	// Room is how many purges its queue holds.
	Room int

	// Rate is how many purges per hour it works off at a time. It is looked up
	// with each call, and for every minute in between.
	Rate func(time.Time) float64

	// Answered, if there is one, is told each answer: the id that the call
	// carried, and the status. It is called by one goroutine at a time.
	Answered func(id string, status int)

	mu     sync.Mutex
	length float64 // of the queue, at that time
	at     time.Time
}

// Length is how many purges are in its queue.
func (c *CDN) Length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work()
	return int(c.length + 0.5)
}

// work takes what has been worked off out of the queue.
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

// ServeHTTP answers a call.
func (c *CDN) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, text := c.judge(r)
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
	_, _ = io.WriteString(w, text) // whoever asked may have gone
}

// judge reports what is wrong with a call, whatever the queue.
func (c *CDN) judge(r *http.Request) (status int, text string) {
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
