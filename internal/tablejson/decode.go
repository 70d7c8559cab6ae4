package tablejson

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// Decode parses the output of Encode, or the same format written by a user. If the type of a value is missing, the error
// shows the expected form.
func Decode(s string) (topology.Table, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber() // because float64 cannot represent all 64-bit integers
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("unexpected data after the table")
	}
	return readTable(fields)
}

func readTable(fields map[string]any) (topology.Table, error) {
	t := make(topology.Table, len(fields))
	for written, v := range fields {
		name := written
		if encoded, found := strings.CutPrefix(written, base64Name); found {
			b, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, fmt.Errorf("header %.40q: %w", written, err)
			}
			name = string(b)
		}
		var err error
		if t[name], err = Value(v); err != nil {
			return nil, fmt.Errorf("header %.40q: %w", name, err)
		}
	}
	return t, nil
}

// Value converts a value that encoding/json has decoded, with numbers as json.Number, to a value of a table.
func Value(v any) (any, error) {
	switch x := v.(type) {
	case nil, bool, string:
		return x, nil
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			var err error
			if out[i], err = Value(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if len(x) == 1 {
			for name, v := range x {
				return readTyped(name, v)
			}
		}
		return nil, fmt.Errorf(`an object must have one name, the name of a type: {"int32": 5} or {"table": {…}}`)
	case json.Number:
		return nil, fmt.Errorf(`number %[1]s must have a type: {"int64": %[1]s} or {"float64": %[1]s}`, x)
	}
	return nil, fmt.Errorf("unexpected %T", v)
}

// readTyped converts a value with the name of its type.
func readTyped(name string, v any) (any, error) {
	switch x := v.(type) {
	case map[string]any:
		if name == "table" {
			return readTable(x)
		}
	case []any:
		if name == "decimal" && len(x) == 2 {
			n, _ := x[0].(json.Number)
			scale, err := integer[uint8](n.String())
			n, _ = x[1].(json.Number)
			value, err2 := integer[int32](n.String())
			if err == nil && err2 == nil {
				return amqpconn.Decimal{Scale: scale.(uint8), Value: value.(int32)}, nil
			}
		}
	case string:
		switch name {
		case "string", "bytes":
			b, err := base64.StdEncoding.DecodeString(x)
			if err != nil {
				return nil, fmt.Errorf("base64: %w", err)
			}
			if name == "string" {
				return string(b), nil
			}
			return b, nil
		case "float32":
			bits, err := strconv.ParseUint(x, 16, 32)
			if err == nil {
				return math.Float32frombits(uint32(bits)), nil
			}
		case "float64":
			bits, err := strconv.ParseUint(x, 16, 64)
			if err == nil {
				return math.Float64frombits(bits), nil
			}
		}
	case json.Number:
		if read, ok := numbers[name]; ok {
			if n, err := read(x.String()); err == nil {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("%v is not a value of type %q", v, name)
}

// numbers contains the decoders of the types that JSON represents as numbers.
var numbers = map[string]func(string) (any, error){
	"int8": integer[int8], "uint8": integer[uint8], "int16": integer[int16], "uint16": integer[uint16],
	"int32": integer[int32], "uint32": integer[uint32], "int64": integer[int64],
	"time": func(text string) (any, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		return time.Unix(n, 0).UTC(), err
	},
	"float32": func(text string) (any, error) {
		f, err := strconv.ParseFloat(text, 32)
		return float32(f), err
	},
	"float64": func(text string) (any, error) { return strconv.ParseFloat(text, 64) },
}

func integer[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64](text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && int64(T(n)) != n {
		err = strconv.ErrRange
	}
	return T(n), err
}
