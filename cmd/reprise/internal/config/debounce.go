package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

// longestWindow returns the maximum debounce window: half of the time after which a worker requeues messages that are
// not yet being handled. The library has the same limit.
func longestWindow(consumerTimeout time.Duration) time.Duration {
	if consumerTimeout < 0 {
		return math.MaxInt64 / 2
	}
	return cmp.Or(consumerTimeout, reprise.DefaultConsumerTimeout) / 5 * 4 / 2
}

// debounce reads a debounce window and key.
func (v value) debounce(longest time.Duration) *reprise.Debounce {
	d := &reprise.Debounce{Key: reprise.ContentKey}
	v.short("debounce", "window", "10s", func(x value) {
		var ok bool
		if d.Window, ok = duration(time.Millisecond)(x); ok && d.Window > longest {
			x.fail("%s is %s, which exceeds half of consumer_timeout; write %s or less, or raise consumer_timeout here and in the broker",
				x.name, FormatDuration(d.Window), FormatDuration(longest))
		}
	}, func(f *fields) {
		read(f, "key", &d.Key, value.key)
	})
	return d
}

// key reads the debounce key of messages: the body, the routing key, or a header. If that part of a message is empty or
// absent, the key of the message is "", which means no key.
//
//	key: body
//	key: {header: customer}
func (v value) key() (func(*reprise.Delivery) string, bool) {
	if v.isMapping() {
		name, ok := mapping("key", func(f *fields, name *string) {
			if !read(f, "header", name, text("customer")) {
				f.missing(v.name+" has no header; write {header: NAME}, body or routing-key", "header")
			}
		})(v)
		return func(m *reprise.Delivery) string { return handler.Text(m.Headers[name]) }, ok
	}
	routingKey := func(m *reprise.Delivery) string { return m.RoutingKey }
	key, ok := choose(is("body", bodyKey), is("routing-key", routingKey), is[func(*reprise.Delivery) string]("{header: NAME}", nil))(v)
	if ok && key == nil {
		return nil, v.fail("%s must not have quotes: remove them", v.name)
	}
	return key, ok
}

// bodyKey returns a hash, so that the key of a long body is short.
func bodyKey(m *reprise.Delivery) string {
	if len(m.Body) == 0 {
		return ""
	}
	sum := sha256.Sum256(m.Body)
	return hex.EncodeToString(sum[:])
}
