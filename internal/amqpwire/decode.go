package amqpwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

var (
	// ErrMalformed is wrapped by all decoding errors except [*FrameError] and [*UnknownMethodError].
	ErrMalformed = errors.New("malformed")
	// ErrUTF8 wraps ErrMalformed. It is separate because RabbitMQ has a separate message for this error, "Malformed
	// UTF-8 in shortstr".
	ErrUTF8 = fmt.Errorf("%w: invalid UTF-8 in short string", ErrMalformed)

	errTruncated = fmt.Errorf("%w: truncated", ErrMalformed)
)

// decoder reads values from the front of b. After the first error, b is empty and all values are zero, so that callers
// need to check err only once.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// take returns the next n bytes, which alias the input. If fewer bytes are left, it returns nil.
func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail(errTruncated)
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) octet() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) short() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) long() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) longlong() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// shortblock reads a one-byte length and that many bytes, which alias the input.
func (d *decoder) shortblock() []byte { return d.take(int(d.octet())) }

// rawstr reads a short string, which need not be UTF-8.
func (d *decoder) rawstr() string { return string(d.shortblock()) }

// rawstrCached is like rawstr, but does not allocate if the value equals cached. Most messages have the same destination as
// the previous message.
func (d *decoder) rawstrCached(cached string) string {
	b := d.shortblock()
	if string(b) == cached {
		return cached
	}
	return string(b)
}

// shortstr reads a short string that must be UTF-8.
func (d *decoder) shortstr() string {
	s := d.shortblock()
	if !utf8.Valid(s) {
		d.fail(ErrUTF8)
		return ""
	}
	return string(s)
}

func (d *decoder) longstr() string { return string(d.block()) }

// block reads a four-byte length and that many bytes, which alias the input. The comparison uses 64 bits, because the
// length may not fit into an int.
func (d *decoder) block() []byte {
	n := d.long()
	if uint64(n) > uint64(len(d.b)) {
		d.fail(errTruncated)
		return nil
	}
	return d.take(int(n))
}

// end returns the first error, or an error if bytes remain.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%w: %d bytes remain after the last value", ErrMalformed, len(d.b))
	}
	return d.err
}
