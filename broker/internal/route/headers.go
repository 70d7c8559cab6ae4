package route

import (
	"reflect"
	"strings"
)

// headers is the matcher of headers exchanges. It matches the headers of a message and ignores the routing key. The
// arguments of a binding specify headers and their values. The argument x-match specifies whether all headers must
// match or any one is sufficient (https://www.rabbitmq.com/docs/exchanges#headers).
type headers[Q comparable] map[binding[Q]]Binding[Q]

func (m headers[Q]) add(b Binding[Q])    { m[b.identity()] = b }
func (m headers[Q]) remove(b Binding[Q]) { delete(m, b.identity()) }

func (m headers[Q]) match(dst []Destination[Q], _ string, message Message) []Destination[Q] {
	for _, b := range m {
		if headersMatch(b.Arguments, message.Headers) {
			dst = append(dst, b.Destination)
		}
	}
	return dst
}

// Values of x-match. Arguments whose names begin with "x-" are ignored unless the value ends in "with-x". The argument
// x-match itself is always ignored.
const (
	matchAll      = "all"
	matchAny      = "any"
	matchAllWithX = "all-with-x"
	matchAnyWithX = "any-with-x"
)

// ValidHeadersMatch reports whether v is a valid value of x-match.
func ValidHeadersMatch(v any) bool {
	return v == matchAll || v == matchAny || v == matchAllWithX || v == matchAnyWithX
}

func headersMatch(wanted, message Arguments) bool {
	how := any(matchAll)
	if v, given := wanted.Get("x-match"); given {
		how = v
	}
	all := how == matchAll || how == matchAllWithX
	withX := how == matchAllWithX || how == matchAnyWithX
	for name, want := range wanted.All() {
		if name == "x-match" || !withX && strings.HasPrefix(name, "x-") {
			continue
		}
		has, present := message.Get(name)
		// A binding argument without a value only requires that the header be present.
		switch matches := present && (want == nil || sameValue(want, converted(has))); {
		case matches && !all:
			return true
		case !matches && all:
			return false
		}
	}
	return all
}

// index finds arguments by name in constant time.
type index struct {
	Arguments
	values map[string]any
}

// Get implements [Arguments].
func (i *index) Get(name string) (any, bool) {
	v, found := i.values[name]
	return v, found
}

// indexed returns the headers, with an index if there are many. Without an index, a match would take quadratic time.
func indexed(headers Arguments) Arguments {
	if headers == nil {
		return nil
	}
	if _, done := headers.(*index); done {
		return headers
	}
	n := 0
	for range headers.All() {
		n++
	}
	if n <= shortList {
		return headers
	}
	i := &index{headers, make(map[string]any, n)}
	for name, value := range headers.All() {
		if _, earlier := i.values[name]; !earlier {
			i.values[name] = value
		}
	}
	return i
}

// converted returns a header of a message as RabbitMQ compares it. RabbitMQ converts timestamps to milliseconds in
// messages, but not in bindings.
func converted(header any) any {
	if v := reflect.ValueOf(header); v.Kind() == reflect.Uint64 {
		return int64(v.Uint()) * 1000
	}
	return header
}

// sameValue reports whether two values are equal. Like RabbitMQ, it compares numbers regardless of their width, and
// strings by their bytes. Values of different kinds, such as an integer and a fraction, are not equal.
func sameValue(a, b any) bool {
	if x, ok := integer(a); ok {
		y, ok := integer(b)
		return ok && x == y
	}
	if x, ok := fraction(a); ok {
		y, ok := fraction(b)
		return ok && x == y
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b) || empty(a) && empty(b)
}

// empty reports whether v is a table or an array without elements, which are equal in Erlang.
func empty(v any) bool {
	of := reflect.ValueOf(v)
	return of.Kind() == reflect.Slice && of.Len() == 0
}

// integer returns the value of an integer of any width, or of a timestamp. Only timestamps can exceed an int64, and
// they then become negative.
func integer(v any) (int64, bool) {
	switch n := reflect.ValueOf(v); {
	case n.CanInt():
		return n.Int(), true
	case n.CanUint():
		return int64(n.Uint()), true
	}
	return 0, false
}

func fraction(v any) (float64, bool) {
	switch f := v.(type) {
	case float32:
		return float64(f), true
	case float64:
		return f, true
	}
	return 0, false
}

func text(v any) (string, bool) {
	switch t := v.(type) {
	case string:
		return t, true
	case []byte:
		return string(t), true
	}
	return "", false
}
