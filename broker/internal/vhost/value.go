package vhost

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// integer returns the value of any integer type of the wire format. A uint64 is not an integer, because it represents a
// timestamp.
func integer(v any) (int64, bool) {
	switch n := reflect.ValueOf(v); {
	case n.CanInt():
		return n.Int(), true
	case n.CanUint() && n.Kind() != reflect.Uint64:
		return int64(n.Uint()), true
	}
	return 0, false
}

// natural returns a non-negative integer.
func natural(v any) (n int64, problem string) {
	n, ok := integer(v)
	switch {
	case !ok:
		return 0, expectedInteger(v)
	case n < 0:
		return 0, fmt.Sprintf("{value_negative,%d}", n)
	}
	return n, ""
}

// MaxExpiry is RabbitMQ's maximum for times in milliseconds: ten years.
const MaxExpiry = 315_360_000_000

// expiry returns a time in milliseconds, at most MaxExpiry.
func expiry(v any) (n int64, problem string) {
	if n, problem = natural(v); n > MaxExpiry {
		return 0, fmt.Sprintf("{value_too_large,%d}", n)
	}
	return n, problem
}

// positive returns the result of parse, which must be greater than zero.
func positive(parse func(v any) (int64, string), v any) (n int64, problem string) {
	if n, problem = parse(v); problem == "" && n == 0 {
		return 0, "{value_zero,0}"
	}
	return n, problem
}

// maxName is the maximum length of a name or a routing key in the wire format.
const maxName = 255

// name copies v, which must be a name or a routing key, to *to.
func name(v any, to *string) (problem string) {
	s, ok := v.(string)
	switch {
	case !ok:
		return unacceptable(v)
	case len(s) > maxName: // too long for a delivery to a consumer
		return fmt.Sprintf(`"longer than %d bytes"`, maxName)
	}
	*to = s
	return ""
}

// oneOf returns the index of v in known.
func oneOf(v any, unknown string, known ...string) (index int, problem string) {
	s, ok := v.(string)
	if !ok {
		return 0, unacceptable(v)
	}
	if index = slices.Index(known, s); index < 0 {
		return 0, unknown
	}
	return index, ""
}

func expectedInteger(v any) string {
	return fmt.Sprintf(`"expected integer, got %s"`, amqpwire.TypeName(v))
}

func unacceptable(v any) string { return fmt.Sprintf("{unacceptable_type,%s}", amqpwire.TypeName(v)) }

// milliseconds converts a number to a duration. A number that is too large becomes the maximum duration.
func milliseconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}
