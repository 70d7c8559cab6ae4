package management

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// arguments is a field table whose JSON representation is an object. Numbers are decoded as 64-bit integers if
// possible, and otherwise as doubles.
type arguments amqpwire.Table

// MarshalJSON implements [json.Marshaler]. It preserves the order of the fields. If several fields have the same name,
// it writes only the first field.
func (a arguments) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	seen := make(map[string]bool, len(a))
	for _, f := range a {
		if seen[f.Name] {
			continue
		}
		if seen[f.Name] = true; len(b) > 1 {
			b = append(b, ',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(toJSON(f.Value))
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", f.Name, err)
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// toJSON converts a field table value to a value that encoding/json can encode.
func toJSON(v any) any {
	switch v := v.(type) {
	case amqpwire.Table:
		return arguments(v)
	case amqpwire.Array:
		all := make([]any, len(v))
		for i := range v {
			all[i] = toJSON(v[i])
		}
		return all
	case []byte:
		return string(v)
	case amqpwire.Timestamp:
		return uint64(v)
	case amqpwire.Decimal:
		return float64(v.Value) / math.Pow10(int(v.Scale))
	case float32:
		return toJSON(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	}
	return v
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *arguments) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case nil:
		*a = nil
		return nil
	case json.Delim('['):
		// Clients in Erlang and PHP may encode an empty map as an empty list.
		if !d.More() {
			*a = nil
			return nil
		}
	case json.Delim('{'):
		table, err := readTable(d, 1)
		*a = arguments(table)
		return err
	}
	return badRequest([]string{"not_map", "arguments"})
}

func readTable(d *json.Decoder, depth int) (amqpwire.Table, error) {
	if depth > amqpwire.MaxDepth {
		return nil, badRequest("arguments are nested too deep")
	}
	var t amqpwire.Table
	places := make(map[string]int)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := readValue(d, depth)
		if err != nil {
			return nil, err
		}
		if i, twice := places[name.(string)]; twice {
			t[i].Value = value
			continue
		}
		places[name.(string)] = len(t)
		t = append(t, amqpwire.Field{Name: name.(string), Value: value})
	}
	_, err := d.Token()
	return t, err
}

func readValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	case json.Delim:
		if v == '{' {
			return readTable(d, depth+1)
		}
		if depth >= amqpwire.MaxDepth {
			return nil, badRequest("arguments are nested too deep")
		}
		var array amqpwire.Array
		for d.More() {
			item, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, item)
		}
		_, err := d.Token()
		return array, err
	}
	if token == nil {
		return nil, badRequest("null_not_allowed")
	}
	return token, nil // a string or a boolean
}

// natural is a non-negative integer. In JSON, it may also be a string.
type natural int

// UnmarshalJSON implements [json.Unmarshaler].
func (n *natural) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	value, err := strconv.Atoi(strings.Trim(string(b), `"`))
	if err != nil || value < 0 {
		return badRequest([]any{"not_integer", json.RawMessage(b)})
	}
	*n = natural(value)
	return nil
}

// flag is a boolean. In JSON, it may also be the string "true" or "false", as in RabbitMQ.
type flag bool

// UnmarshalJSON implements [json.Unmarshaler].
func (f *flag) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true", `"true"`:
		*f = true
	case "false", `"false"`, "null":
		*f = false
	default:
		return badRequest([]any{"not_boolean", json.RawMessage(b)})
	}
	return nil
}
