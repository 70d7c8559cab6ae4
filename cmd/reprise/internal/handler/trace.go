package handler

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
)

// traceShapes has the headers of W3C Trace Context and the form of their values. Other values could inject a header.
var traceShapes = map[string]*regexp.Regexp{
	"traceparent": regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[0-9a-f-]{0,64}$`),
	"tracestate":  regexp.MustCompile(`^[!-~][ -~]{0,511}$`),
}

// traceHeaders returns the valid headers of W3C Trace Context of a message. Handlers also get them under their own names,
// which libraries for tracing read. If names differ only in case, the name in lower case is last.
func traceHeaders(m *reprise.Delivery) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
			name := strings.ToLower(key)
			shape := traceShapes[name]
			if value := Text(m.Headers[key]); shape != nil && shape.MatchString(value) && !yield(name, value) {
				return
			}
		}
	}
}
