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

// Decode reads what Encode wrote, or a person wrote like it. The error says what
// to write.
func Decode(s string) (topology.Table, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber() // 64 bits do not fit into a float64
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more after the table")
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

// Value returns the value of JSON that was decoded with numbers as json.Number.
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
		return nil, fmt.Errorf(`an object needs one name, that of a type: {"int32": 5} or {"table": {…}}`)
	case json.Number:
		return nil, fmt.Errorf(`number %[1]s: write its type: {"int64": %[1]s} or {"float64": %[1]s}`, x)
	}
	return nil, fmt.Errorf("unexpected %T", v)
}

// readTyped reads the value beside the name of its type.
func readTyped(name string, v any) (any, error) {
	switch x := v.(type) {
	case map[string]any:
		if name == "table" {
			return readTable(x)
		}
	case []any:
		if name == "decimal" && len(x) == 2 {
			scale, err := readInt(x[0], 0, math.MaxUint8)
			value, err2 := readInt(x[1], math.MinInt32, math.MaxInt32)
			if err == nil && err2 == nil {
				return amqpconn.Decimal{Scale: uint8(scale), Value: int32(value)}, nil
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
		if n, err := readNumber(name, x); err == nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%v is no value of type %q", v, name)
}

func readNumber(name string, x json.Number) (any, error) {
	switch name {
	case "int8":
		n, err := readInt(x, math.MinInt8, math.MaxInt8)
		return int8(n), err
	case "uint8":
		n, err := readInt(x, 0, math.MaxUint8)
		return uint8(n), err
	case "int16":
		n, err := readInt(x, math.MinInt16, math.MaxInt16)
		return int16(n), err
	case "uint16":
		n, err := readInt(x, 0, math.MaxUint16)
		return uint16(n), err
	case "int32":
		n, err := readInt(x, math.MinInt32, math.MaxInt32)
		return int32(n), err
	case "uint32":
		n, err := readInt(x, 0, math.MaxUint32)
		return uint32(n), err
	case "int64":
		return readInt(x, math.MinInt64, math.MaxInt64)
	case "time":
		n, err := readInt(x, math.MinInt64, math.MaxInt64)
		return time.Unix(n, 0).UTC(), err
	case "float32":
		f, err := strconv.ParseFloat(x.String(), 32)
		return float32(f), err
	case "float64":
		return strconv.ParseFloat(x.String(), 64)
	}
	return nil, fmt.Errorf("no type %q", name)
}

func readInt(v any, least, most int64) (int64, error) {
	x, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is no number", v)
	}
	n, err := strconv.ParseInt(x.String(), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s is not between %d and %d", x, least, most)
	}
	return n, nil
}
