package amqpwire

import (
	"fmt"
	"math"
	"slices"
)

// TypeName returns RabbitMQ's name for the type of a field value, as in RabbitMQ's error messages: "signedint" for an
// int32, "longstr" for a string. For a value without an AMQP type it returns the Go type.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case Decimal:
		return "decimal"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case Array:
		return "array"
	case Timestamp:
		return "timestamp"
	case Table:
		return "table"
	}
	return fmt.Sprintf("%T", v)
}

// value reads a type octet and a value; depth is the nesting depth of the table or array that contains them.
func (d *decoder) value(depth int) any {
	switch t := d.octet(); t {
	case 't':
		return d.octet() != 0
	case 'b':
		return int8(d.octet())
	case 'B':
		return d.octet()
	case 's':
		return int16(d.short())
	case 'u':
		return d.short()
	case 'I':
		return int32(d.long())
	case 'i':
		return d.long()
	case 'l', 'L':
		return int64(d.longlong())
	case 'f':
		return math.Float32frombits(d.long())
	case 'd':
		return math.Float64frombits(d.longlong())
	case 'D':
		return Decimal{Scale: d.octet(), Value: d.long()}
	case 'S':
		return d.longstr()
	case 'x':
		return slices.Clone(d.block())
	case 'A':
		return d.arrayAt(depth + 1)
	case 'T':
		return Timestamp(d.longlong())
	case 'F':
		return d.tableAt(depth + 1)
	case 'V':
		return nil
	default:
		d.fail(fmt.Errorf("%w: unknown field type %q", ErrMalformed, t))
		return nil
	}
}

// value appends a type octet and a value; depth is the nesting depth of the table or array that contains them.
func (e *encoder) value(v any, depth int) {
	switch v := v.(type) {
	case nil:
		e.octet('V')
	case bool:
		e.octet('t')
		e.octet(bit(v, 0))
	case int8:
		e.octet('b')
		e.octet(uint8(v))
	case uint8:
		e.octet('B')
		e.octet(v)
	case int16:
		e.octet('s')
		e.short(uint16(v))
	case uint16:
		e.octet('u')
		e.short(v)
	case int32:
		e.octet('I')
		e.long(uint32(v))
	case uint32:
		e.octet('i')
		e.long(v)
	case int64:
		e.octet('l')
		e.longlong(uint64(v))
	case float32:
		e.octet('f')
		e.long(math.Float32bits(v))
	case float64:
		e.octet('d')
		e.longlong(math.Float64bits(v))
	case Decimal:
		e.octet('D')
		e.octet(v.Scale)
		e.long(v.Value)
	case string:
		e.octet('S')
		e.longstr(v)
	case []byte:
		e.octet('x')
		mark := e.openBlock()
		e.b = append(e.b, v...)
		e.closeBlock(mark)
	case Array:
		e.octet('A')
		e.arrayAt(v, depth+1)
	case Timestamp:
		e.octet('T')
		e.longlong(uint64(v))
	case Table:
		e.octet('F')
		e.tableAt(v, depth+1)
	case Encoded:
		e.b = append(e.b, v...)
	default:
		e.fail(fmt.Errorf("cannot encode Go type %T as an AMQP field", v))
	}
}
