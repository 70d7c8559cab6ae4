package amqpwire

import (
	"fmt"
	"sync"
)

// codec reads or writes the arguments of a method, which lists them once for both directions.
type codec struct {
	decoder // reading: of the input that is left; writing: all output so far
	writing bool
}

func (c *codec) encoder() *encoder { return (*encoder)(&c.decoder) }

func (c *codec) octet(v *uint8) *codec {
	if c.writing {
		c.encoder().octet(*v)
	} else {
		*v = c.decoder.octet()
	}
	return c
}

func (c *codec) short(v *uint16) *codec {
	if c.writing {
		c.encoder().short(*v)
	} else {
		*v = c.decoder.short()
	}
	return c
}

func (c *codec) long(v *uint32) *codec {
	if c.writing {
		c.encoder().long(*v)
	} else {
		*v = c.decoder.long()
	}
	return c
}

func (c *codec) longlong(v *uint64) *codec {
	if c.writing {
		c.encoder().longlong(*v)
	} else {
		*v = c.decoder.longlong()
	}
	return c
}

func (c *codec) table(v *Table) *codec {
	if c.writing {
		c.encoder().table(*v)
	} else {
		*v = c.decoder.table()
	}
	return c
}

func (c *codec) longstr(v *string) *codec {
	if c.writing {
		c.encoder().longstr(*v)
	} else {
		*v = c.decoder.longstr()
	}
	return c
}

// shortstr is a short string that must be UTF-8.
func (c *codec) shortstr(v *string) *codec {
	if c.writing {
		c.encoder().shortstr(*v)
	} else {
		*v = c.decoder.shortstr()
	}
	return c
}

// rawstr is a short string of any bytes. Read in place of an equal string, it does not allocate.
func (c *codec) rawstr(v *string) *codec {
	if c.writing {
		c.encoder().shortstr(*v)
	} else {
		*v = c.decoder.rawstrAgain(*v)
	}
	return c
}

// bits share an octet, the first is the lowest bit. A nil bit is reserved.
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

// zeroShort, emptyShort and emptyLong are reserved arguments: written as zero, and accepted with any value.
func (c *codec) zeroShort() *codec {
	var ignored uint16
	return c.short(&ignored)
}

func (c *codec) emptyShort() *codec {
	if c.writing {
		c.encoder().octet(0)
	} else {
		c.shortblock()
	}
	return c
}

func (c *codec) emptyLong() *codec {
	if c.writing {
		c.encoder().long(0)
	} else {
		c.block()
	}
	return c
}

// codecs has codecs to be used again, since one that is passed to a [Method] is on the heap.
var codecs = sync.Pool{New: func() any { return new(codec) }}

// run reads or writes the arguments of a method, and returns what is left of the input, or all output.
func run(m Method, b []byte, writing bool) decoder {
	c := codecs.Get().(*codec)
	c.b, c.err, c.writing = b, nil, writing
	m.arguments(c)
	d := c.decoder
	c.decoder = decoder{}
	codecs.Put(c)
	return d
}

// Append appends the arguments of a method. It fails if a value does not fit its field, such as a short string of over 255
// bytes; dst is then returned as it came.
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

// Parse sets every field of a method from its arguments, which must end with the last of them. After an error the fields are
// undefined.
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
