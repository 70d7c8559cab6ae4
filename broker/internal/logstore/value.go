package logstore

import (
	"encoding/binary"
	"fmt"
)

// Flags at the start of a value. The first three indicate which optional fields follow. A value omits optional fields
// that are zero.
const (
	hasDeadline = 1 << iota
	hasDue
	hasCounts
	isRedelivered
	isTransient
)

var errValue = fmt.Errorf("message state: %w", ErrDamaged)

// appendValue appends the encoding of a message and its state to dst.
//
//	flags, bytes, [deadline], [due], [deliveries, acquired], message
func appendValue(dst []byte, e *Entry) []byte {
	var flags byte
	for _, f := range []struct {
		flag byte
		set  bool
	}{
		{hasDeadline, e.Deadline != 0},
		{hasDue, e.Due != 0},
		{hasCounts, e.Deliveries != 0 || e.Acquired != 0},
		{isRedelivered, e.Redelivered},
		{isTransient, e.Transient},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, e.Bytes)
	if flags&hasDeadline != 0 {
		dst = binary.AppendVarint(dst, e.Deadline)
	}
	if flags&hasDue != 0 {
		dst = binary.AppendVarint(dst, e.Due)
	}
	if flags&hasCounts != 0 {
		dst = binary.AppendVarint(dst, e.Deliveries)
		dst = binary.AppendVarint(dst, e.Acquired)
	}
	return e.Message.Append(dst)
}

// parseValue is the inverse of appendValue. The returned message shares the memory of b.
func parseValue(b []byte) (s State, message []byte, err error) {
	if len(b) == 0 {
		return s, nil, errValue
	}
	flags := b[0]
	s.Redelivered, s.Transient = flags&isRedelivered != 0, flags&isTransient != 0
	b = b[1:]
	for _, f := range []struct {
		in byte // flag of the field; 0 if the field is always present
		to *int64
	}{
		{0, &s.Bytes},
		{hasDeadline, &s.Deadline},
		{hasDue, &s.Due},
		{hasCounts, &s.Deliveries},
		{hasCounts, &s.Acquired},
	} {
		if f.in != 0 && flags&f.in == 0 {
			continue
		}
		v, n := binary.Varint(b)
		if n <= 0 {
			return s, nil, errValue
		}
		*f.to, b = v, b[n:]
	}
	return s, b, nil
}
