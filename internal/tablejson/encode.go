// Package tablejson encodes AMQP tables as JSON that preserves their types, and decodes it:
//
//	text, true, null, [array]     unchanged
//	{"int32": 5}                  int8 to int64, uint8 to uint32, float32, float64
//	{"bytes": "AAE="}             base64
//	{"time": 1767225600}          seconds since 1970
//	{"decimal": [2, 1234]}        scale and value
//	{"table": {"name": …}}        a nested table
//	{"string": "//4="}            text that is not UTF-8, in base64
//	{"float64": "7ff8000000000001"}  NaN and infinities: their bits
//
// A name that is not UTF-8, or that begins with "base64:", is written as "base64:" followed by its bytes in base64. Names
// are sorted, so that equal tables have equal encodings, in all versions of this package. Control characters are escaped,
// because PostgreSQL strings cannot contain NUL.
//
// Package failed, the JSON API and the command reprise use this format.
package tablejson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// maxDepth is the maximum nesting depth of tables and arrays. AMQP clients have lower limits.
const maxDepth = 100

const base64Name = "base64:"

// Encode returns a table as one line of JSON. It returns an error for a value that AMQP does not support.
func Encode(t topology.Table) (string, error) {
	fields, err := fieldsOf(t, 0)
	if err != nil {
		return "", err
	}
	return write(fields)
}

// EncodeList is like Encode, but encodes an array.
func EncodeList(list []any) (string, error) {
	v, err := jsonOf(list, 0)
	if err != nil {
		return "", err
	}
	return write(v)
}

// Equal reports whether two values of a table have the same encoding. A NaN equals itself, and an empty table nil.
func Equal(a, b any) bool {
	first, err := Encode(topology.Table{"": a})
	second, err2 := Encode(topology.Table{"": b})
	return err == nil && err2 == nil && first == second
}

func write(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v) // sorts names
	return escapes.Replace(strings.TrimSuffix(b.String(), "\n")), err
}

// escapes replaces escapes of encoding/json. It must not change, because the archive compares the output with the output of
// earlier versions.
var escapes = strings.NewReplacer(
	`\\`, `\\`, `\b`, `\u0008`, `\t`, `\u0009`, `\n`, `\u000a`, `\f`, `\u000c`, `\r`, `\u000d`,
	"\x7f", `\u007f`, `\u2028`, "\u2028", `\u2029`, "\u2029",
)

func fieldsOf(t map[string]any, depth int) (map[string]any, error) {
	fields := make(map[string]any, len(t))
	for name, v := range t {
		written := name
		if !utf8.ValidString(name) || strings.HasPrefix(name, base64Name) {
			written = base64Name + base64.StdEncoding.EncodeToString([]byte(name))
		}
		var err error
		if fields[written], err = jsonOf(v, depth+1); err != nil {
			return nil, fmt.Errorf("header %.40q: %w", name, err)
		}
	}
	return fields, nil
}

// Any is a string of arbitrary bytes, with the JSON form that it has in a table.
type Any string

// MarshalJSON implements [json.Marshaler].
func (s Any) MarshalJSON() ([]byte, error) { return json.Marshal(textOf(string(s))) }

func textOf(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]any{"string": []byte(s)}
}

// jsonOf returns the value to pass to encoding/json.
func jsonOf(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("value must have at most %d levels of nesting", maxDepth)
	}
	switch x := v.(type) {
	case nil, bool:
		return x, nil
	case string:
		return textOf(x), nil
	case int8, uint8, int16, uint16, int32, uint32, int64:
		return map[string]any{fmt.Sprintf("%T", x): x}, nil
	case int:
		return map[string]any{"int64": x}, nil
	case time.Time:
		return map[string]any{"time": x.Unix()}, nil
	case float32:
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return map[string]any{"float32": fmt.Sprintf("%x", math.Float32bits(x))}, nil
		}
		return map[string]any{"float32": number(float64(x), 32)}, nil
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return map[string]any{"float64": fmt.Sprintf("%x", math.Float64bits(x))}, nil
		}
		return map[string]any{"float64": number(x, 64)}, nil
	case []byte:
		return map[string]any{"bytes": append([]byte{}, x...)}, nil
	case amqpconn.Decimal:
		return map[string]any{"decimal": []int64{int64(x.Scale), int64(x.Value)}}, nil
	case topology.Table:
		return tableOf(x, depth)
	case map[string]any:
		return tableOf(x, depth)
	case []any:
		list := make([]any, len(x))
		for i, e := range x {
			var err error
			if list[i], err = jsonOf(e, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("unsupported type %T (see topology.Table)", v)
}

func number(f float64, bits int) json.Number {
	return json.Number(strconv.FormatFloat(f, 'g', -1, bits))
}

func tableOf(t map[string]any, depth int) (any, error) {
	fields, err := fieldsOf(t, depth)
	return map[string]any{"table": fields}, err
}
