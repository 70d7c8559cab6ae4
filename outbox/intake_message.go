package outbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Headers that an Intake reads.
const (
	headerDelay     = "x-delay"
	headerAt        = "x-reprise-at"
	headerTo        = "x-reprise-to-exchange"
	headerKey       = "x-reprise-key"
	headerUnique    = "x-reprise-unique"
	headerUniqueFor = "x-reprise-unique-for"
)

// message returns the message to schedule for a delivery, or the reason why its headers are invalid.
func (c IntakeConfig) message(d *reprise.Delivery) (*Message, error) {
	if _, found := d.Headers[reprise.HeaderUnreadable]; found {
		return nil, errors.New("headers cannot be decoded")
	}
	m := &Message{Message: d.Message}
	m.NoTimestamp = true // the message keeps its properties
	m.Headers = maps.Clone(d.Headers)
	if m.Headers == nil {
		m.Headers = map[string]any{}
	}
	c.restore(m, d)
	maps.DeleteFunc(m.Headers, func(name string, _ any) bool { return amqpvalue.IsBrokerHeader(name) })
	if m.UserID != "" { // the broker would refuse the user of another connection
		m.Headers[reprise.HeaderUserID] = m.UserID
		m.UserID = ""
	}
	var err error
	take := func(name string, read func(any) error) {
		v, found := m.Headers[name]
		if !found || err != nil {
			return
		}
		delete(m.Headers, name)
		if bad := read(v); bad != nil {
			err = fmt.Errorf("header %s %w", name, bad)
		}
	}
	m.Exchange = c.Destinations[0]
	take(headerTo, text(&m.Exchange))
	take(headerKey, text(&m.Key))
	take(headerUnique, text(&m.Unique))
	take(headerUniqueFor, duration(&m.UniqueFor))
	take(headerAt, at(&m.At))
	take(headerDelay, func(v any) error {
		err := duration(&m.In)(v)
		m.Headers[headerDelay] = negated(m.In)
		m.In = max(0, m.In)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case m.In > 0 && !m.At.IsZero():
		return nil, fmt.Errorf("headers %s and %s must not both be set", headerDelay, headerAt)
	case !slices.Contains(c.Destinations, m.Exchange):
		return nil, fmt.Errorf("exchange %q is not permitted as a destination (permitted: %q)", m.Exchange, c.Destinations)
	}
	for _, queue := range []string{c.Exchange, c.expired()} { // a message to them would return, with as many copies, without end
		if m.Exchange == "" && (m.RoutingKey == queue || hasCC(m.Headers, queue)) {
			return nil, fmt.Errorf("queue %q must not be a destination, because it belongs to the intake", queue)
		}
	}
	return m, nil
}

// hasCC reports whether the header CC contains a routing key.
func hasCC(headers map[string]any, key string) bool {
	list, _ := headers["CC"].([]any)
	return slices.ContainsFunc(list, func(v any) bool {
		var s string
		return text(&s)(v) == nil && s == key
	})
}

// restore restores the values that the message had when it was published: the expiration of a message that has expired in the
// queue, and what a copy in the failed queue must not have.
func (c IntakeConfig) restore(m *Message, d *reprise.Delivery) {
	deaths, _ := d.Headers["x-death"].([]any)
	for _, death := range deaths {
		entry, _ := death.(topology.Table)
		if text, ok := entry["original-expiration"].(string); ok && entry["queue"] == c.Exchange && entry["reason"] == "expired" {
			if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 && ms <= maxDelay.Milliseconds() {
				m.Expiration = time.Duration(ms) * time.Millisecond
			}
			break
		}
	}
	queue, _ := d.Headers[topology.HeaderQueue].(string)
	if queue != c.Exchange && queue != c.expired() {
		return
	}
	if key, ok := d.Headers[topology.HeaderRoutingKey].(string); ok && d.Exchange == "" { // otherwise it has its routing key
		m.RoutingKey = key
	}
	if cc, found := d.Headers[reprise.HeaderCC]; found {
		m.Headers["CC"] = cc
	}
	if text, ok := d.Headers[reprise.HeaderExpiration].(string); ok {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 && ms <= maxDelay.Milliseconds() {
			m.Expiration = time.Duration(ms) * time.Millisecond
		}
	}
	maps.DeleteFunc(m.Headers, func(name string, _ any) bool {
		return topology.Trail{}.Owns(name) || name == reprise.HeaderCC || name == reprise.HeaderExpiration
	})
}

// maxDelay is the longest delay, and the longest expiration of RabbitMQ. A time in milliseconds since 1970 is longer, so it is
// not mistaken for a delay.
const maxDelay = 10 * 365 * 24 * time.Hour

// text returns a function that reads a text into s.
func text(s *string) func(any) error {
	return func(v any) error {
		switch t := v.(type) {
		case string:
			*s = t
		case []byte:
			*s = string(t)
		default:
			return fmt.Errorf("must be a text: got %T", v)
		}
		return nil
	}
}

// duration returns a function that reads milliseconds into d, as an integer, a fraction or a text, as the plugin
// rabbitmq_delayed_message_exchange does.
func duration(d *time.Duration) func(any) error {
	return func(v any) error {
		ms, ok := amqpvalue.Integer(v)
		switch t := v.(type) {
		case float32:
			ms, ok = whole(float64(t))
		case float64:
			ms, ok = whole(t)
		case string, []byte:
			n, err := strconv.ParseInt(fmt.Sprintf("%s", t), 10, 64)
			ms, ok = n, err == nil
		}
		if limit := maxDelay.Milliseconds(); !ok || ms > limit || ms < -limit {
			return fmt.Errorf("must be a number of milliseconds, at most ten years: got %.80s (%T)", fmt.Sprint(v), v)
		}
		*d = time.Duration(ms) * time.Millisecond
		return nil
	}
}

// negated returns the header of a message that was delayed. Like the plugin up to RabbitMQ 3.12, it prefers 32 bits. Since 3.13, the
// header has 64 bits, also in the embedded broker; pika 1.2 reads such a negative number as unsigned.
func negated(d time.Duration) any {
	ms := -max(d, -d).Milliseconds()
	if ms >= math.MinInt32 {
		return int32(ms)
	}
	return ms
}

func whole(f float64) (int64, bool) { return int64(f), math.Abs(f) < 1<<53 } // false for NaN

// at returns a function that reads a time into t.
func at(t *time.Time) func(any) error {
	return func(v any) error {
		switch x := v.(type) {
		case time.Time:
			*t = x
		case string:
			*t, _ = time.Parse(time.RFC3339, x)
		default:
			if ms, ok := amqpvalue.Integer(v); ok {
				*t = time.UnixMilli(ms)
			}
		}
		if year := t.UTC().Year(); year < 2000 || year > 9999 { // also for seconds instead of milliseconds
			return fmt.Errorf("must be a time in RFC 3339, a timestamp, or an integer in milliseconds since 1970, from the year 2000 on: got %.80s (%T)", fmt.Sprint(v), v)
		}
		return nil
	}
}
