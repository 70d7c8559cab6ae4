package route

import (
	"bytes"
	"reflect"
	"strings"
)

// headers matches by the headers of a message, whatever its routing key: the binding's arguments name headers and their
// values, and x-match says whether all of them must be there or one is enough
// (https://www.rabbitmq.com/docs/exchanges#headers).
type headers[Q comparable] map[binding[Q]]Binding[Q]

func (m headers[Q]) add(b Binding[Q])    { m[b.identity()] = b }
func (m headers[Q]) remove(b Binding[Q]) { delete(m, b.identity()) }

func (m headers[Q]) match(dst []Destination[Q], _ string, message Arguments) []Destination[Q] {
	for _, b := range m {
		if headersMatch(b.Arguments, message) {
			dst = append(dst, b.Destination)
		}
	}
	return dst
}

// The ways to match. Those without "with-x" pass over names that begin with "x-", as the others do over x-match itself.
const (
	matchAll      = "all"
	matchAny      = "any"
	matchAllWithX = "all-with-x"
	matchAnyWithX = "any-with-x"
)

// ValidHeadersMatch reports whether a value of x-match is one.
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
		// A binding with no value asks only that the header be there.
		switch matches := present && (want == nil || sameValue(want, has)); {
		case matches && !all:
			return true
		case !matches && all:
			return false
		}
	}
	return all
}

// sameValue compares by value: integers of different width may be equal, and nothing else of different types.
func sameValue(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case x.CanInt() && y.CanInt():
		return x.Int() == y.Int()
	case x.CanUint() && y.CanUint():
		return x.Uint() == y.Uint()
	case x.CanInt() && y.CanUint():
		return x.Int() >= 0 && uint64(x.Int()) == y.Uint()
	case x.CanUint() && y.CanInt():
		return sameValue(b, a)
	}
	if p, ok := a.([]byte); ok {
		q, ok := b.([]byte)
		return ok && bytes.Equal(p, q)
	}
	return reflect.DeepEqual(a, b)
}
