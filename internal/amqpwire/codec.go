package amqpwire

import (
	"fmt"
	"sync"
)

// codec reads or writes the arguments of a method. A method lists its arguments only once, for both directions, unless
// it is in hot.go.
type codec struct {
	decoder // reading: the remaining input; writing: the output so far
	writing bool
}

// field reads or writes *v, depending on c.writing.
func field[T any](c *codec, v *T, read func(*decoder) T, write func(*encoder, T)) *codec {
	if c.writing {
		write((*encoder)(&c.decoder), *v)
	} else {
		*v = read(&c.decoder)
	}
	return c
}

func (c *codec) octet(v *uint8) *codec { return field(c, v, (*decoder).octet, (*encoder).octet) }

func (c *codec) short(v *uint16) *codec { return field(c, v, (*decoder).short, (*encoder).short) }
func (c *codec) long(v *uint32) *codec  { return field(c, v, (*decoder).long, (*encoder).long) }
func (c *codec) longlong(v *uint64) *codec {
	return field(c, v, (*decoder).longlong, (*encoder).longlong)
}

func (c *codec) table(v *Table) *codec { return field(c, v, (*decoder).table, (*encoder).table) }

func (c *codec) longstr(v *string) *codec { return field(c, v, (*decoder).longstr, (*encoder).longstr) }

// shortstr reads or writes a short string that must be UTF-8.
func (c *codec) shortstr(v *string) *codec {
	return field(c, v, (*decoder).shortstr, (*encoder).shortstr)
}

// rawstr reads or writes a short string, which need not be UTF-8. If it reads a string that equals *v, it does not
// allocate.
func (c *codec) rawstr(v *string) *codec {
	earlier := *v
	return field(c, v, func(d *decoder) string { return d.rawstrCached(earlier) }, (*encoder).shortstr)
}

// bits reads or writes bits that share an octet, starting at the lowest bit. A nil pointer represents a reserved bit.
func (c *codec) bits(bits ...*bool) *codec {
	var octet uint8
	if c.writing {
		for i, bit := range bits {
			if bit != nil && *bit {
				octet |= 1 << i
			}
		}
		return c.octet(&octet)
	}
	c = c.octet(&octet)
	for i, bit := range bits {
		if bit != nil {
			*bit = octet&(1<<i) != 0
		}
	}
	return c
}

// zeroShort, emptyShort and emptyLong read or write reserved arguments. They write a zero or empty value, and ignore
// the value that they read.
func (c *codec) zeroShort() *codec  { return c.short(new(uint16)) }
func (c *codec) emptyShort() *codec { return c.rawstr(new(string)) }
func (c *codec) emptyLong() *codec  { return c.longstr(new(string)) }

// codecs is a pool of codecs, because a codec that is passed to a [Method] escapes to the heap.
var codecs = sync.Pool{New: func() any { return new(codec) }}

// run reads or writes the arguments of a method. The result contains the remaining input, or the complete output.
func run(m Method, b []byte, writing bool) decoder {
	c := codecs.Get().(*codec)
	c.b, c.err, c.writing = b, nil, writing
	m.arguments(c)
	d := c.decoder
	c.decoder = decoder{}
	codecs.Put(c)
	return d
}

// Append appends the encoded arguments of m to dst. If a value does not fit its field, such as a short string of more than
// 255 bytes, it returns an error and dst unchanged.
func Append(dst []byte, m Method) ([]byte, error) {
	var e encoder
	if deliver, ok := m.(*BasicDeliver); ok {
		e.b = dst
		deliver.append(&e)
	} else {
		e = encoder(run(m, dst, true))
	}
	if e.err != nil {
		return dst, fmt.Errorf("amqpwire: %v: %w", m.ID(), e.err)
	}
	return e.b, nil
}

// Parse decodes args into the fields of m. It returns an error if bytes follow the last argument. After an error, the
// fields are undefined.
func Parse(args []byte, m Method) error {
	d := decoder{b: args}
	switch m := m.(type) {
	case *BasicPublish:
		m.parse(&d)
	case *BasicAck:
		m.parse(&d)
	default:
		d = run(m, args, false)
	}
	if err := d.end(); err != nil {
		return fmt.Errorf("amqpwire: %v: %w", m.ID(), err)
	}
	return nil
}
