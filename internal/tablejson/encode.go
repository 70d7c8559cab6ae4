// Package tablejson writes tables of AMQP as JSON that keeps their types, and reads it back:
//
//	text, true, null, [array]     unchanged
//	{"int32": 5}                  int8 to int64, uint8 to uint32, float32, float64
//	{"bytes": "AAE="}             base64
//	{"time": 1767225600}          seconds since 1970
//	{"decimal": [2, 1234]}        scale and value
//	{"table": {"name": …}}        a table within
//	{"string": "//4="}            text that is not UTF-8, in base64
//	{"float64": "7ff8000000000001"}  NaN and infinities: their bits
//
// A name that is not UTF-8 is written as "base64:" and its bytes, and so is a name that
// begins with "base64:". Names are sorted, so that equal tables are equal text. The text has
// no control characters: PostgreSQL's text holds no NUL.
//
// It exists apart from package failed since the JSON API and the command write tables, too.
package tablejson

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/amqpconn"

	"github.com/reprisemq/reprise/topology"
)

// maxDepth is how deep tables and arrays may nest: more than any AMQP client reads.
const maxDepth = 100

const base64Name = "base64:"

// Encode returns a table as JSON, on one line. The error says which value no AMQP client reads.
func Encode(t topology.Table) (string, error) {
	b, err := appendTable(nil, t, 0)
	return string(b), err
}

func appendTable[T ~map[string]any](b []byte, t T, depth int) ([]byte, error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(t)) {
		if i > 0 {
			b = append(b, ',')
		}
		written := name
		if !utf8.ValidString(name) || strings.HasPrefix(name, base64Name) {
			written = base64Name + base64.StdEncoding.EncodeToString([]byte(name))
		}
		b = append(appendString(b, written), ':')
		var err error
		if b, err = AppendValue(b, t[name], depth+1); err != nil {
			return b, fmt.Errorf("header %.40q: %w", name, err)
		}
	}
	return append(b, '}'), nil
}

// AppendValue appends the JSON of a value; depth is how deep it is in a table.
func AppendValue(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return b, fmt.Errorf("it nests deeper than %d", maxDepth)
	}
	switch x := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, x), nil
	case string:
		return AppendText(b, x), nil
	case int8:
		return appendInt(b, "int8", int64(x)), nil
	case uint8:
		return appendInt(b, "uint8", int64(x)), nil
	case int16:
		return appendInt(b, "int16", int64(x)), nil
	case uint16:
		return appendInt(b, "uint16", int64(x)), nil
	case int32:
		return appendInt(b, "int32", int64(x)), nil
	case uint32:
		return appendInt(b, "uint32", int64(x)), nil
	case int64:
		return appendInt(b, "int64", x), nil
	case int:
		return appendInt(b, "int64", int64(x)), nil
	case time.Time:
		return appendInt(b, "time", x.Unix()), nil
	case float32:
		return appendFloat(b, "float32", float64(x), 32, uint64(math.Float32bits(x))), nil
	case float64:
		return appendFloat(b, "float64", x, 64, math.Float64bits(x)), nil
	case []byte:
		return appendBase64(b, "bytes", string(x)), nil
	case amqpconn.Decimal:
		return fmt.Appendf(b, `{"decimal":[%d,%d]}`, x.Scale, x.Value), nil
	case topology.Table:
		return appendNested(b, x, depth)
	case map[string]any:
		return appendNested(b, x, depth)
	case []any:
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = AppendValue(b, e, depth+1); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
	return b, fmt.Errorf("a value of type %T: see topology.Table for the types of headers", v)
}

func appendNested[T ~map[string]any](b []byte, t T, depth int) ([]byte, error) {
	b, err := appendTable(append(b, `{"table":`...), t, depth)
	return append(b, '}'), err
}

func appendInt(b []byte, name string, n int64) []byte {
	return append(strconv.AppendInt(append(append(append(b, `{"`...), name...), `":`...), n, 10), '}')
}

func appendFloat(b []byte, name string, f float64, size int, bits uint64) []byte {
	b = append(append(append(b, `{"`...), name...), `":`...)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Appendf(b, `"%x"}`, bits)
	}
	return append(strconv.AppendFloat(b, f, 'g', -1, size), '}')
}

func appendBase64(b []byte, name, s string) []byte {
	b = append(append(append(b, `{"`...), name...), `":"`...)
	return append(base64.StdEncoding.AppendEncode(b, []byte(s)), `"}`...)
}

// AppendText appends any text, be it UTF-8 or not.
func AppendText(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return appendBase64(b, "string", s)
	}
	return appendString(b, s)
}

// appendString appends text that is UTF-8.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
