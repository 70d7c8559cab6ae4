package vhost

import (
	"fmt"
	"math"
	"reflect"

	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// sameArguments returns an error if a declaration differs from the existing queue in a compared argument.
func (v *VHost) sameArguments(q *Queue, received amqpwire.Table) error {
	current := q.Arguments()
	kind := "classic"
	if q.kind() == quorum {
		kind = "quorum"
	}
	for _, name := range amqpvalue.ComparedArguments(kind) {
		if err := sameArgument(name, v.queue(q.Name()), received, current); err != nil {
			return err
		}
	}
	return nil
}

func sameArgument(name, of string, received, current amqpwire.Table) error {
	is, has := received.Get(name)
	was, had := current.Get(name)
	if name == "x-queue-type" { // a queue without a type is classic
		is, has = orClassic(is, has)
		was, had = orClassic(was, had)
	}
	switch {
	case !had && !has, had && has && equivalent(was, is):
		return nil
	case had && has:
		return inequivalent(name, of, quoted(is), quoted(was))
	}
	return inequivalent(name, of, describe(is, has), describe(was, had))
}

func orClassic(kind any, given bool) (any, bool) {
	if !given {
		kind = "classic"
	}
	return kind, true
}

func describe(v any, present bool) string {
	if !present {
		return "none"
	}
	return fmt.Sprintf("the value '%s' of type '%s'", text(v), amqpwire.TypeName(v))
}

func quoted(v any) string {
	if v == nil {
		return "none"
	}
	return "'" + text(v) + "'"
}

// text formats a value without quotes.
func text(v any) string {
	switch s := v.(type) {
	case string:
		return s
	case []byte:
		return string(s)
	}
	return erlang.Term(v)
}

// equivalent reports whether two values are equal in Erlang, which does not distinguish between the widths of numbers,
// strings and bytes, or a table and an array without elements.
func equivalent(a, b any) bool { return reflect.DeepEqual(plain(a), plain(b)) }

func plain(v any) any {
	if n, ok := integer(v); ok {
		return n
	}
	switch v := v.(type) {
	case amqpwire.Timestamp:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case float32:
		return float64(v)
	case []byte:
		return string(v)
	case amqpwire.Table:
		if len(v) == 0 {
			return amqpwire.Array(nil)
		}
	case amqpwire.Array:
		if len(v) == 0 {
			return amqpwire.Array(nil)
		}
	}
	return v
}
