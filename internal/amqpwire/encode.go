package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// encoder appends values to b. It keeps the first error and continues, so that callers need to check err only once.
type encoder struct {
	b   []byte
	err error
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *encoder) octet(v uint8)     { e.b = append(e.b, v) }
func (e *encoder) short(v uint16)    { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *encoder) long(v uint32)     { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) longlong(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }

func (e *encoder) shortstr(s string) {
	if len(s) > math.MaxUint8 {
		e.fail(fmt.Errorf("short string must have at most 255 bytes: got %d", len(s)))
		return
	}
	e.b = append(append(e.b, uint8(len(s))), s...)
}

func (e *encoder) longstr(s string) {
	mark := e.openBlock()
	e.b = append(e.b, s...)
	e.closeBlock(mark)
}

// openBlock reserves space for a length that closeBlock writes.
func (e *encoder) openBlock() (mark int) {
	e.long(0)
	return len(e.b)
}

func (e *encoder) closeBlock(mark int) {
	size := uint64(len(e.b) - mark)
	if size > math.MaxUint32 {
		e.fail(fmt.Errorf("length must fit in four octets: got %d bytes", size))
		return
	}
	binary.BigEndian.PutUint32(e.b[mark-4:], uint32(size))
}

// bit returns v as the bit at position pos.
func bit(v bool, pos uint) uint8 {
	if v {
		return 1 << pos
	}
	return 0
}
