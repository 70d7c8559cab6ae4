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

// longestWindow is how long messages may wait for others like them: half of the time
// after which a worker gives back what has not begun, as the library has it.
func longestWindow(consumerTimeout time.Duration) time.Duration {
	if consumerTimeout < 0 {
		return math.MaxInt64 / 2
	}
	return cmp.Or(consumerTimeout, reprise.DefaultConsumerTimeout) / 5 * 4 / 2
}

// debounce reads a window.
func (v value) debounce(longest time.Duration) *reprise.Debounce {
	d := &reprise.Debounce{Key: reprise.ContentKey}
	window := func(x value) {
		var ok bool
		if d.Window, ok = x.duration(time.Millisecond); ok && d.Window > longest {
			x.fail("%s is %s, messages that wait so long are given back to the broker before: write %s or less, or raise consumer_timeout, here and at the broker",
				x.name, FormatDuration(d.Window), FormatDuration(longest))
		}
	}
	v.short("debounce", "window", "10s", window, func(f *fields) {
		f.read("key", func(x value) { d.Key = x.key() })
	})
	return d
}

// key reads what messages have in common: the body, the routing key, or a header.
// A message whose part of that name is empty or absent has the key "", which stands
// for none.
//
//	key: body
//	key: {header: customer}
func (v value) key() func(*reprise.Message) string {
	if v.kind() != "a mapping" {
		switch s, _ := v.oneOf("body", "routing-key", "{header: NAME}"); s {
		case "body":
			return bodyKey
		case "routing-key":
			return func(m *reprise.Message) string { return m.RoutingKey }
		case "{header: NAME}":
			v.fail("%s is a text: remove the quotes", v.name)
		}
		return nil
	}
	var name string
	v.mapping("key", func(f *fields) {
		if !f.read("header", func(x value) { name, _ = x.text("customer") }) {
			f.missing(v.name+" names no header: write {header: NAME}, body or routing-key", "header")
		}
	})
	return func(m *reprise.Message) string { return handler.Text(m.Headers[name]) }
}

// bodyKey is as short for a long body.
func bodyKey(m *reprise.Message) string {
	if len(m.Body) == 0 {
		return ""
	}
	sum := sha256.Sum256(m.Body)
	return hex.EncodeToString(sum[:])
}
