package management

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// maxAdvance is the maximum move of the clock in one request. More is probably a mistake.
const maxAdvance = 10 * 365 * 24 * time.Hour

// clock serves the clock of TTLs and delays, which RabbitMQ does not have. Tests move it.
func (h *Handler) clock() {
	h.handle("GET /api/clock", administrator, func(c *call) (any, error) { return c.clockFields() })
	h.handle("POST /api/clock", administrator, func(c *call) (any, error) {
		if _, err := c.clockFields(); err != nil {
			return nil, err
		}
		var body struct {
			Advance json.RawMessage `json:"advance"`
		}
		if err := c.decode(&body, "advance"); err != nil {
			return nil, err
		}
		d, ok := duration(body.Advance)
		if !ok || d < 0 || d > maxAdvance {
			return nil, badRequest("advance must be a time up to ten years, such as \"4h\", \"90s\" or a number of seconds: got " + brief.Quoted(string(body.Advance)))
		}
		if time.Until(c.node.Clock.Now())+d > 10*maxAdvance {
			return nil, badRequest("the clock is almost a century ahead: restart the broker")
		}
		c.node.Clock.Advance(d)
		return c.clockFields()
	})
}

// duration decodes a Go duration or a number of seconds.
func duration(text json.RawMessage) (time.Duration, bool) {
	var seconds float64
	if json.Unmarshal(text, &seconds) == nil {
		return time.Duration(seconds * float64(time.Second)), seconds <= maxAdvance.Seconds()
	}
	var written string
	if json.Unmarshal(text, &written) != nil {
		return 0, false
	}
	d, err := time.ParseDuration(strings.TrimSpace(written))
	return d, err == nil
}

// clockFields returns the time of the clock, and how far it is ahead of real time.
func (c *call) clockFields() (any, error) {
	if c.node.Clock == nil {
		return nil, &failure{http.StatusBadRequest, "bad_request", "only a broker in memory has a clock that can be moved (reprise broker --memory)"}
	}
	now := c.node.Clock.Now()
	return fields{"now": now.UTC().Format(time.RFC3339Nano), "ahead": time.Until(now).Round(time.Millisecond).Seconds()}, nil
}
