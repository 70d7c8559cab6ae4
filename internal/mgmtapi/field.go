package mgmtapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/reprisemq/reprise/topology"
)

// Field is a field of a response, or an element of a list. The types of fields depend on the version of the broker and
// on the history of a queue, so a value with an unexpected type affects only its Field.
type Field[T any] struct {
	Value T    // the zero value, unless Known
	Known bool // whether the response contains a value of type T

	Malformed bool // whether the response contains a value of another type; null counts as missing
}

// UnmarshalJSON implements [json.Unmarshaler]. It never returns an error.
func (f *Field[T]) UnmarshalJSON(text []byte) error {
	*f = Field[T]{}
	if string(text) == "null" {
		return nil
	}
	var v T
	err := json.Unmarshal(text, &v)
	if err != nil && len(bytes.Trim(text, "[] \t\r\n")) == 0 {
		v = *new(T)
		err = json.Unmarshal([]byte("{}"), &v) // RabbitMQ encodes an object without fields as an empty list
	}
	if f.Malformed = err != nil; f.Malformed {
		return nil
	}
	f.Value, f.Known = v, true
	return nil
}

// count returns the value of a counter. RabbitMQ omits a counter until its event occurs.
func (f Field[T]) count() Field[T] {
	return Field[T]{Value: f.Value, Known: !f.Malformed, Malformed: f.Malformed}
}

// list requests a list. It omits elements that are not of type T; complete reports whether the list contains none.
func list[T any](ctx context.Context, a API, path string) (elements []T, complete bool, err error) {
	var answer Field[[]Field[T]]
	if err := a.Get(ctx, path, &answer); err != nil {
		return nil, false, err
	}
	if !answer.Known {
		return nil, false, a.undecoded(errors.New("not a list"))
	}
	complete = true
	for _, e := range answer.Value {
		if !e.Known {
			complete = false
			continue
		}
		elements = append(elements, e.Value)
	}
	return elements, complete, nil
}

// arguments are the arguments of a queue, of an exchange or of a binding.
type arguments = Field[map[string]Field[any]]

// table converts arguments. Integers become int64.
func table(from arguments) topology.Table {
	t := topology.Table{}
	for name, v := range from.Value {
		if n, ok := Integer(v.Value); ok {
			v.Value = n
		}
		if v.Known {
			t[name] = v.Value
		}
	}
	return t
}
