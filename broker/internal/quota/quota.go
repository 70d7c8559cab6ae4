// Package quota implements the limits that an operator sets for virtual hosts and users, such as max-connections
// (https://www.rabbitmq.com/docs/vhosts#limits, https://www.rabbitmq.com/docs/user-limits).
package quota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/erlang"
)

// Names of limits.
const (
	MaxConnections = "max-connections"
	MaxQueues      = "max-queues"
	MaxChannels    = "max-channels"
)

// Limits contains limits by name. A negative limit means no limit, and zero permits nothing.
type Limits map[string]int64

// Parse parses limits from a JSON object. An empty JSON list contains no limits. The argument of is RabbitMQ's name for the
// object in error messages, and names lists the permitted limits. The problems are RabbitMQ's messages.
func Parse(of string, text json.RawMessage, names ...string) (limits Limits, problems []string) {
	var given map[string]json.RawMessage
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' || json.Unmarshal(trimmed, &given) != nil {
		var list []json.RawMessage
		switch {
		case json.Unmarshal(text, &list) != nil || list == nil:
			return nil, []string{of + " not a list " + erlang.RawJSON(text)}
		case len(list) > 0:
			return nil, []string{"Unrecognised terms " + erlang.RawJSON(text) + " in " + of}
		}
	}
	limits = make(Limits)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		n, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case !slices.Contains(names, name):
			unknown = append(unknown, "{"+erlang.Term(name)+","+erlang.RawJSON(value)+"}")
		case err != nil:
			problems = slices.Insert(problems, 0, name+" should be a number, actually was "+erlang.RawJSON(value)) // RabbitMQ reverses the order
		default:
			limits[name] = n
		}
	}
	if unknown != nil {
		problems = slices.Insert(problems, 0, fmt.Sprintf("Unrecognised terms [%s] in %s", strings.Join(unknown, ","), of))
	}
	return limits, problems
}

// Reached reports whether a limit does not permit another object in addition to n objects, and returns the limit.
func (l Limits) Reached(name string, n int) (limit int64, reached bool) {
	limit, given := l[name]
	return limit, given && limit >= 0 && int64(n) >= limit
}

// Counter counts the connections or channels of each virtual host or user, and compares the numbers with a limit. A nil
// Counter has no limit. A Counter is safe for concurrent use.
type Counter struct {
	Limit  string                    // name of the limit
	Limits func(owner string) Limits // limits of a virtual host or user

	mu     sync.Mutex
	counts map[string]int
}

// Add counts an object of an owner. If the limit is reached, it returns the limit and false.
func (c *Counter) Add(owner string) (limit int64, ok bool) {
	if c == nil {
		return 0, true
	}
	limits := c.Limits(owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit, reached := limits.Reached(c.Limit, c.counts[owner]); reached {
		return limit, false
	}
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[owner]++
	return 0, true
}

// Remove undoes a successful Add.
func (c *Counter) Remove(owner string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[owner]--; c.counts[owner] == 0 {
		delete(c.counts, owner)
	}
}

// Full reports whether Add would fail.
func (c *Counter) Full(owner string) bool {
	limits := c.Limits(owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, reached := limits.Reached(c.Limit, c.counts[owner])
	return reached
}
