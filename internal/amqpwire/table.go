package amqpwire

import (
	"fmt"
	"iter"
	"slices"
)

// MaxDepth is the maximum nesting depth of tables and arrays, including the outermost table. It limits the stack use of
// the decoder, and stops the encoder at an array that contains itself.
const MaxDepth = 1024

// Field is a field of a [Table]. [Table] lists the types of Value.
type Field struct {
	Name  string
	Value any
}

// Table is a field table. Unlike a map, it preserves duplicate names and the order of the fields on the wire. A table
// without fields decodes as nil.
//
// A table is a four-byte length and that many bytes of fields. Each field is a short string, a type octet and a value. An
// array has the same format without the names.
//
//	type  Go type       RabbitMQ's name   value
//	t     bool          bool              1 octet, any but 0 is true
//	b     int8          byte              1 octet
//	B     uint8         unsignedbyte      1 octet
//	s     int16         short             2 octets
//	u     uint16        unsignedshort     2 octets
//	I     int32         signedint         4 octets
//	i     uint32        unsignedint       4 octets
//	l, L  int64         long              8 octets
//	f     float32       float             4 octets, IEEE 754
//	d     float64       double            8 octets, IEEE 754
//	D     Decimal       decimal           1 octet scale, 4 octets value
//	S     string        longstr           4 octets length, content
//	x     []byte        binary            4 octets length, content
//	A     Array         array             4 octets length, values
//	T     Timestamp     timestamp         8 octets, seconds since 1970
//	F     Table         table             4 octets length, fields
//	V     nil           void              nothing
//
// The types follow RabbitMQ, which differs from the specification: s is a 16 bit integer, not a short string, and L is
// signed like l. Append writes L as l, and every true as 1. Apart from these cases, a decoded table encodes to the same
// bytes.
type Table []Field

// Array is a field value that contains a sequence of values. An array without values decodes as nil.
type Array []any

// Timestamp is a field value in seconds since 1970 in UTC.
type Timestamp uint64

// Decimal is a field value that represents Value / 10^Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// Encoded is a field value with its type octet, in the encoding on the wire. The encoder writes it unchanged, and the decoder never
// returns it.
type Encoded []byte

// Get returns the value of the first field with the given name, and reports whether this field exists.
func (t Table) Get(name string) (any, bool) {
	if i := t.index(name); i >= 0 {
		return t[i].Value, true
	}
	return nil, false
}

// All yields the names and values of all fields, in order.
func (t Table) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, f := range t {
			if !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// Set returns a copy of t in which the first field with the given name has the value v. If no field has this name, Set
// adds one. Later fields with the same name do not change.
func (t Table) Set(name string, v any) Table {
	// The extra capacity avoids a second copy in the append below.
	c := append(make(Table, 0, len(t)+1), t...)
	if i := t.index(name); i >= 0 {
		c[i].Value = v
		return c
	}
	return append(c, Field{Name: name, Value: v})
}

// Delete returns a copy of t without the fields that have the given name.
func (t Table) Delete(name string) Table {
	return slices.DeleteFunc(slices.Clone(t), func(f Field) bool { return f.Name == name })
}

func (t Table) index(name string) int {
	return slices.IndexFunc(t, func(f Field) bool { return f.Name == name })
}

// ParseTable parses an encoded table. b must contain one encoded table and nothing else.
func ParseTable(b []byte) (Table, error) {
	d := decoder{b: b}
	t := d.table()
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("amqpwire: field table: %w", err)
	}
	return t, nil
}

// Append appends the encoded table, including its length. If it cannot encode a value, for example because its type does not
// exist in AMQP, it returns an error and dst unchanged.
func (t Table) Append(dst []byte) ([]byte, error) {
	e := encoder{b: dst}
	e.table(t)
	if e.err != nil {
		return dst, fmt.Errorf("amqpwire: field table: %w", e.err)
	}
	return e.b, nil
}

var errTooDeep = fmt.Errorf("tables and arrays must nest at most %d deep", MaxDepth)

func (d *decoder) table() Table { return d.tableAt(1) }

func (d *decoder) tableAt(depth int) Table {
	inner := d.nested(depth)
	var t Table
	for len(inner.b) > 0 {
		f := Field{Name: inner.rawstr()}
		f.Value = inner.value(depth)
		t = append(t, f)
	}
	return leave(d, &inner, t)
}

func (d *decoder) arrayAt(depth int) Array {
	inner := d.nested(depth)
	var a Array
	for len(inner.b) > 0 {
		a = append(a, inner.value(depth))
	}
	return leave(d, &inner, a)
}

// nested returns a decoder for the content of the next block.
func (d *decoder) nested(depth int) decoder {
	if depth > MaxDepth {
		d.fail(fmt.Errorf("%w: %w", ErrMalformed, errTooDeep))
		return decoder{}
	}
	return decoder{b: d.block()}
}

// leave returns v. If inner has an error, leave passes it to d and returns the zero value instead.
func leave[T any](d, inner *decoder, v T) T {
	if inner.err != nil {
		d.fail(inner.err)
		var none T
		return none
	}
	return v
}

func (e *encoder) table(t Table) { e.tableAt(t, 1) }

func (e *encoder) tableAt(t Table, depth int) {
	if !e.enter(depth) {
		return
	}
	mark := e.openBlock()
	for _, f := range t {
		e.shortstr(f.Name)
		e.value(f.Value, depth)
		// Without this return, a value that contains itself twice would need 2^MaxDepth steps.
		if e.err != nil {
			e.err = fmt.Errorf("field %q: %w", f.Name, e.err)
			return
		}
	}
	e.closeBlock(mark)
}

func (e *encoder) arrayAt(a Array, depth int) {
	if !e.enter(depth) {
		return
	}
	mark := e.openBlock()
	for _, v := range a {
		if e.value(v, depth); e.err != nil {
			return
		}
	}
	e.closeBlock(mark)
}

func (e *encoder) enter(depth int) bool {
	if depth > MaxDepth {
		e.fail(errTooDeep)
		return false
	}
	return true
}
