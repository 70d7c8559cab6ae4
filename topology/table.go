package topology

import (
	"reflect"
	"time"
)

// Table is an AMQP field table: the headers of a message, or the arguments of a declaration. Nested tables are Tables, and
// arrays are []any. Numbers have the same width as on the wire.
//
// Values may be nil, bool, byte, int8, int16, uint16, int32, uint32, int64, float32, float64, string,
// []byte, time.Time (whole seconds), Table, []any of these, and the Decimal of the AMQP client.
type Table map[string]any

// WireSize returns the encoded size of the table in bytes, including the length prefix. Workers limit the size of the
// headers that they write, because a content header must fit into one frame. WireSize also accepts the additional types
// that package reprise accepts from a handler. An int or uint counts as 64 bits, and a map that converts to Table as a
// Table.
func (t Table) WireSize() int {
	size := 4
	for k, v := range t {
		size += 1 + len(k) + wireSize(v)
	}
	return size
}

// wireSize returns the size of a field value, including its type byte.
func wireSize(v any) int {
	switch x := v.(type) {
	case nil:
		return 1
	case bool, int8, uint8:
		return 1 + 1
	case int16, uint16:
		return 1 + 2
	case int32, uint32, float32:
		return 1 + 4
	case int, uint, int64, uint64, float64, time.Time:
		return 1 + 8
	case string:
		return 1 + 4 + len(x)
	case []byte:
		return 1 + 4 + len(x)
	case Table:
		return 1 + x.WireSize()
	case []any:
		size := 1 + 4
		for _, e := range x {
			size += wireSize(e)
		}
		return size
	}
	if m := reflect.ValueOf(v); m.CanConvert(tableType) { // for example the Table of the AMQP client
		return 1 + m.Convert(tableType).Interface().(Table).WireSize()
	}
	return 1 + 8 // a Decimal has only 5 bytes after the type byte
}

var tableType = reflect.TypeFor[Table]()
