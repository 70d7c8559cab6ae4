package failed

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

// decodeTable reads what encodeTable wrote.
func decodeTable(s string) (topology.Table, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber() // 64 bits do not fit into a float64
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, fmt.Errorf("%w: headers: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: headers: there is more after the table", ErrInvalid)
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
				return nil, fmt.Errorf("%w: header %.40q: %w", ErrInvalid, written, err)
			}
			name = string(b)
		}
		var err error
		if t[name], err = readValue(v); err != nil {
			return nil, doing(err, "header %.40q", name)
		}
	}
	return t, nil
}

func readValue(v any) (any, error) {
	switch x := v.(type) {
	case nil, bool, string:
		return x, nil
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			var err error
			if out[i], err = readValue(e); err != nil {
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
		return nil, fmt.Errorf(`%w: an object needs one name, that of a type: {"int32": 5} or {"table": {…}}`, ErrInvalid)
	case json.Number:
		return nil, fmt.Errorf(`%w: number %s: write its type: {"int64": %[2]s} or {"float64": %[2]s}`, ErrInvalid, x)
	}
	return nil, fmt.Errorf("%w: unexpected %T", ErrInvalid, v)
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
				return nil, fmt.Errorf("%w: base64: %w", ErrInvalid, err)
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
	return nil, fmt.Errorf("%w: %v is no value of type %q", ErrInvalid, v, name)
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
	return nil, fmt.Errorf("%w: no type %q", ErrInvalid, name)
}

func readInt(v any, least, most int64) (int64, error) {
	x, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%w: %v is no number", ErrInvalid, v)
	}
	n, err := strconv.ParseInt(x.String(), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %s is not between %d and %d", ErrInvalid, x, least, most)
	}
	return n, nil
}
