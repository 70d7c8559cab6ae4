package cdnpurge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/reprisemq/reprise"
)

// count records the outcome of each purge of a Show. It is the Observer of the Show's client. It ignores the messages
// that other programs publish to the same queues.
type count struct {
	want     int
	finished chan struct{} // closed when the number of processed and parked purges reaches want

	mu                sync.Mutex
	state             map[string]outcome // by message ID
	sent              int
	accepted, refused int
	doneN, parkedN    int
}

type outcome int

const (
	inFlight outcome = iota
	isDone
	isParked
)

func newCount(want int) *count {
	return &count{want: want, finished: make(chan struct{}), state: map[string]outcome{}}
}

// sends records a purge before it is published.
func (c *count) sends(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state[id] = inFlight
	c.sent++
}

// answered records a response of the CDN.
func (c *count) answered(objects []json.RawMessage, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		if _, ours := c.state[idOf(o)]; !ours {
			continue
		}
		if status == http.StatusCreated {
			c.accepted++
		} else {
			c.refused++
		}
	}
}

// Observe records the messages that the worker processes or parks.
func (c *count) Observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventDone:
		c.ends(e.MessageID, isDone)
	case reprise.EventParked:
		c.ends(e.MessageID, isParked)
	}
}

// done records a message that another program has acknowledged.
func (c *count) done(id string) { c.ends(id, isDone) }

func (c *count) ends(id string, how outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ours := c.state[id]; !ours || now != inFlight {
		return // delivered twice
	}
	c.state[id] = how
	if how == isDone {
		c.doneN++
	} else {
		c.parkedN++
	}
	if c.doneN+c.parkedN == c.want {
		close(c.finished)
	}
}

// now returns the current counts. left is the number of sent purges that are neither processed nor parked.
func (c *count) now() (sent, accepted, refused, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent, c.accepted, c.refused, c.sent - c.doneN - c.parkedN
}

// balance writes the number of purges by outcome. It returns an error if a purge was not published, or was neither
// processed nor parked.
func (c *count) balance(out io.Writer) error {
	sent, accepted, refused, left := c.now()
	fmt.Fprintf(out, "\n%d sent = %d done + %d parked", sent, c.doneN, c.parkedN)
	if left > 0 {
		fmt.Fprintf(out, " + %d in the queues", left)
	}
	fmt.Fprintf(out, "; %d calls, of which %d were refused\n", accepted+refused, refused)
	if left > 0 || sent < c.want {
		return fmt.Errorf("unfinished purges: published %d of %d, %d remain in the queues", sent, c.want, left)
	}
	return nil
}
