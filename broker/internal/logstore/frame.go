package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameHeader is the size of a frame's header: checksum, length of the payload, number of the segment. The number
// distinguishes a frame from the remains of another file.
const frameHeader = 12

// beginFrame appends the header of a frame, which endFrame completes.
func beginFrame(dst []byte) []byte { return append(dst, make([]byte, frameHeader)...) }

// endFrame completes a frame that begins at the start of frame.
func endFrame(frame []byte, segment uint32) {
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)-frameHeader))
	binary.LittleEndian.PutUint32(frame[8:], segment)
	binary.LittleEndian.PutUint32(frame, crc32.Checksum(frame[4:], castagnoli))
}

// readFrame returns the payload of the frame at the start of b. If the frame is not valid, the size is 0.
func readFrame(b []byte, segment uint32) (payload []byte, size int) {
	if len(b) < frameHeader || binary.LittleEndian.Uint32(b[8:]) != segment {
		return nil, 0
	}
	size = frameHeader + int(binary.LittleEndian.Uint32(b[4:]))
	if size > len(b) || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:size], castagnoli) {
		return nil, 0
	}
	return b[frameHeader:size], size
}

// isFrameOf reports whether b starts with the header of a frame of a segment, whose rest may be invalid.
func isFrameOf(b []byte, segment uint32) bool {
	return len(b) >= frameHeader && binary.LittleEndian.Uint32(b[8:]) == segment
}

// nextFrame returns the offset of the next valid frame in b, or -1.
func nextFrame(b []byte, segment uint32) int {
	number := binary.LittleEndian.AppendUint32(nil, segment)
	for at := 0; ; at++ {
		i := bytes.Index(b[min(at+8, len(b)):], number)
		if i < 0 {
			return -1
		}
		at += i
		if _, size := readFrame(b[at:], segment); size > 0 {
			return at
		}
	}
}

// Kinds of records.
const (
	kindMessage    = 'm' // checksum, length, queue, level, order, state and message
	kindDocument   = 'd' // checksum, length, length of the name, name, value
	kindTombstones = 't' // segment, number, differences of the offsets
	kindDrop       = 'x' // segment
	kindOpen       = 'o' // the store was opened
	kindClose      = 'c' // the store was closed and is clean
)

// recordHeader is the maximum size of the header of a message or document: kind, checksum, length.
const recordHeader = 1 + 4 + binary.MaxVarintLen32

// appendRecord appends a message or document. The function body appends its content.
func appendRecord(dst []byte, kind byte, body func([]byte) []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, recordHeader)...)
	dst = body(dst)
	content := dst[at+recordHeader:]
	// The length is a varint of fixed size, so that the content does not move.
	h := dst[at : at+recordHeader]
	h[0] = kind
	binary.LittleEndian.PutUint32(h[1:], crc32.Checksum(content, castagnoli))
	n := uint32(len(content))
	for i := 5; i < recordHeader; i++ {
		h[i] = byte(n) | 0x80
		n >>= 7
	}
	h[recordHeader-1] &^= 0x80
	return dst
}

var errRecord = fmt.Errorf("record: %w", ErrDamaged)

// errShort is returned for a record that is longer than the bytes that were read.
var errShort = errors.New("record is longer")

// parseRecord returns the content of the message or document at the start of b, and its size. If b is too short, the error
// is errShort and the size is the size of the record, or 0 if it is unknown.
func parseRecord(b []byte) (kind byte, content []byte, size int, err error) {
	if len(b) < recordHeader {
		return 0, nil, 0, errShort
	}
	length, n := binary.Uvarint(b[5:recordHeader])
	if n != recordHeader-5 || b[0] != kindMessage && b[0] != kindDocument {
		return 0, nil, 0, errRecord
	}
	size = recordHeader + int(length)
	if size > len(b) {
		return 0, nil, size, errShort
	}
	content = b[recordHeader:size]
	if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(b[1:]) {
		return 0, nil, 0, errRecord
	}
	return b[0], content, size, nil
}

func appendMessage(dst []byte, e *Entry) []byte {
	return appendRecord(dst, kindMessage, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, e.Queue)
		dst = append(dst, e.Level)
		dst = binary.AppendUvarint(dst, e.Order)
		return appendValue(dst, e)
	})
}

// parseMessage returns the message in the content of a record. It shares the memory of content.
func parseMessage(content []byte) (m Loaded, err error) {
	var n, o int
	if m.Queue, n = binary.Uvarint(content); n <= 0 || n == len(content) {
		return m, errRecord
	}
	m.Level = content[n]
	if m.Order, o = binary.Uvarint(content[n+1:]); o <= 0 {
		return m, errRecord
	}
	m.State, m.Message, err = parseValue(content[n+1+o:])
	return m, err
}

func appendDocument(dst []byte, name string, value []byte) []byte {
	return appendRecord(dst, kindDocument, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		return append(append(dst, name...), value...)
	})
}

// parseDocument is the inverse of appendDocument. The value shares the memory of content.
func parseDocument(content []byte) (d Document, err error) {
	length, n := binary.Uvarint(content)
	if n <= 0 || length > uint64(len(content)-n) {
		return d, errRecord
	}
	return Document{Name: string(content[n : n+int(length)]), Value: content[n+int(length):]}, nil
}

// appendTombstones appends tombstones for the records at the offsets, which are sorted.
func appendTombstones(dst []byte, segment uint32, offsets []uint32) []byte {
	dst = append(dst, kindTombstones)
	dst = binary.AppendUvarint(dst, uint64(segment))
	dst = binary.AppendUvarint(dst, uint64(len(offsets)))
	var last uint32
	for _, offset := range offsets {
		dst = binary.AppendUvarint(dst, uint64(offset-last))
		last = offset
	}
	return dst
}

// reader decodes numbers. After an error, it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.err = nil, errRecord
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest, r.err = nil, errRecord
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// tombstones reads what follows the kind of a record of tombstones. The offsets are valid until the next call.
func (r *reader) tombstones(spare []uint32) (segment uint32, offsets []uint32) {
	segment = uint32(r.number())
	n := r.number()
	offsets = spare[:0]
	var last uint32
	for ; n > 0 && r.err == nil; n-- {
		last += uint32(r.number())
		offsets = append(offsets, last)
	}
	return segment, offsets
}

// visitor receives the records of a segment, in the order of the file.
type visitor interface {
	message(k Key, offset uint32, bytes int64, transient bool)
	document(name string, offset uint32)
	tombstones(segment uint32, offsets []uint32)
	drop(segment uint32)
	closed()
}

// visitFrame visits the records of a frame whose payload begins at an offset of the file.
func visitFrame(payload []byte, at int, v visitor) error {
	r := reader{rest: payload}
	var spare []uint32
	for len(r.rest) > 0 {
		offset := uint32(at + len(payload) - len(r.rest))
		switch r.rest[0] {
		case kindMessage, kindDocument:
			kind, content, size, err := parseRecord(r.rest)
			if err != nil {
				return errRecord
			}
			if kind == kindMessage {
				m, err := parseMessage(content)
				if err != nil {
					return err
				}
				v.message(m.Key, offset, m.Bytes, m.Transient)
			} else {
				d, err := parseDocument(content)
				if err != nil {
					return err
				}
				v.document(d.Name, offset)
			}
			r.rest = r.rest[size:]
		case kindTombstones:
			r.rest = r.rest[1:]
			var segment uint32
			if segment, spare = r.tombstones(spare); r.err == nil {
				v.tombstones(segment, spare)
			}
		case kindDrop:
			r.rest = r.rest[1:]
			v.drop(uint32(r.number()))
		case kindOpen:
			r.rest = r.rest[1:]
		case kindClose:
			r.rest = r.rest[1:]
			v.closed()
		default:
			return errRecord
		}
	}
	return r.err
}
