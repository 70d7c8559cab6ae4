package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// FrameType is the first octet of a frame.
type FrameType uint8

// Frame types of AMQP 0-9-1.
const (
	FrameMethod    FrameType = 1
	FrameHeader    FrameType = 2
	FrameBody      FrameType = 3
	FrameHeartbeat FrameType = 8
)

const (
	// FrameEnd is the last octet of every frame.
	FrameEnd = 0xCE
	// FrameOverhead is the size of a frame without its payload: type, channel, size and end.
	FrameOverhead = 8
	// MinFrameMax is the smallest frame-max that the specification permits. Every peer must accept frames of this size even
	// before the negotiation.
	MinFrameMax = 4096
	// DefaultFrameMax replaces a frame-max of 0, which means no limit.
	DefaultFrameMax = 131072

	frameHeaderSize = FrameOverhead - 1
)

// ProtocolHeader is the first data that an AMQP 0-9-1 client sends. A server also sends it in reply to any other protocol
// header.
var ProtocolHeader = [8]byte{'A', 'M', 'Q', 'P', 0, 0, 9, 1}

// Frame is one frame. If a [Reader] returned the frame, Payload aliases the buffer of the Reader and is valid until the
// next call to ReadFrame.
//
// All integers are big endian.
//
//	 0      1         3             7                 size+7  size+8
//	+------+---------+-------------+-------------------+------+
//	| type | channel |    size     |      payload      | 0xCE |
//	+------+---------+-------------+-------------------+------+
//	  1 B     2 B         4 B          size bytes        1 B
//
// The negotiated frame-max includes the whole frame, so a payload has at most frame-max minus [FrameOverhead] bytes. A
// [Reader] compares the size with that limit before it reads the payload. The buffer of the Reader grows with the
// received bytes, never with the announced size.
//
// A method frame contains a class, a method and the arguments:
//
//	+---------+----------+-----------------+
//	| class   | method   | arguments ...   |
//	+---------+----------+-----------------+
//	  2 B       2 B
//
// Consecutive bit arguments share octets, starting at the lowest bit. Unused bits are written as zero and ignored when
// read. Bytes after the last argument are an error.
//
// A short string is a one-byte length and that many bytes. Like RabbitMQ, the package validates UTF-8 only in the
// arguments of methods without content. Other short strings may contain any bytes.
//
// After a method with content ([MethodID.HasContent]), the sender sends one header frame, and body frames whose payloads
// have body size bytes in total. An empty body has no body frames. The payload of a header frame:
//
//	+---------+--------+-------------+-------+---------------------+
//	| class   | weight |  body size  | flags | property list ...   |
//	+---------+--------+-------------+-------+---------------------+
//	  2 B       2 B (0)    8 B         2 B
//
// The flags indicate which properties are present, starting with the first property in the highest bit. The lowest bit
// announces another word of flags. AMQP does not define properties in further words, so each of them must be zero except
// for its lowest bit. At most four words are permitted.
//
// A heartbeat frame has no payload. Its channel is 0.
type Frame struct {
	Type    FrameType
	Channel uint16
	Payload []byte
}

// FrameErrorReason is the reason for a [FrameError].
type FrameErrorReason uint8

const (
	// FrameTooLarge means that the frame exceeds frame-max.
	FrameTooLarge FrameErrorReason = iota + 1
	// BadEnd means that the last octet of the frame differs from [FrameEnd].
	BadEnd
)

// FrameError reports a malformed frame. The reader cannot parse the rest of the stream, so it returns the same error on
// every later call.
type FrameError struct {
	Reason  FrameErrorReason
	Type    FrameType
	Channel uint16
	Size    uint32 // announced size of the payload
	Max     uint32 // maximum size of the payload
	End     byte   // octet at the position of FrameEnd; only for BadEnd
	Payload []byte // copy of at most the first 16 octets of the payload; only for BadEnd
}

// Error implements error.
func (e *FrameError) Error() string {
	if e.Reason == FrameTooLarge {
		return fmt.Sprintf("amqpwire: frame of type %d on channel %d: payload of %d bytes exceeds the limit of %d",
			e.Type, e.Channel, e.Size, e.Max)
	}
	return fmt.Sprintf("amqpwire: frame of type %d on channel %d: invalid end marker %d", e.Type, e.Channel, e.End)
}

// limitFrameMax applies the default and the permitted range to a frame-max.
func limitFrameMax(n uint32) uint32 {
	if n == 0 {
		return DefaultFrameMax
	}
	return min(max(n, MinFrameMax), math.MaxInt32)
}

// AppendMethodFrame appends a method frame. A method cannot be split into several frames, so the caller must check that
// the frame does not exceed frame-max. After an error it returns dst unchanged.
func AppendMethodFrame(dst []byte, channel uint16, m Method) ([]byte, error) {
	start := len(dst)
	b := appendFrameHeader(dst, FrameMethod, channel, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(m.ID()))
	b, err := Append(b, m)
	if err != nil {
		return dst, err
	}
	size := len(b) - start - frameHeaderSize
	if uint64(size) > math.MaxUint32 {
		return dst, fmt.Errorf("amqpwire: %v: arguments must fit in one frame: got %d bytes", m.ID(), size)
	}
	binary.BigEndian.PutUint32(b[start+3:], uint32(size))
	return append(b, FrameEnd), nil
}

// AppendHeaderFrame appends a content header frame. The argument properties is an encoded property list, including the
// flags.
func AppendHeaderFrame(dst []byte, channel, class uint16, bodySize uint64, properties []byte) []byte {
	dst = appendFrameHeader(dst, FrameHeader, channel, uint32(contentHeaderSize+len(properties)))
	dst = binary.BigEndian.AppendUint16(dst, class)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, bodySize)
	dst = append(dst, properties...)
	return append(dst, FrameEnd)
}

// AppendBodyFrames appends the body, split into frames of at most frameMax bytes. It does not append a frame for an empty
// body. A frameMax of 0 means [DefaultFrameMax], and a frameMax below [MinFrameMax] means MinFrameMax.
func AppendBodyFrames(dst []byte, channel uint16, body []byte, frameMax uint32) []byte {
	limit := int(limitFrameMax(frameMax)) - FrameOverhead
	frames := (len(body) + limit - 1) / limit
	dst = slices.Grow(dst, len(body)+frames*FrameOverhead)
	for part := range slices.Chunk(body, limit) {
		dst = appendFrame(dst, FrameBody, channel, part)
	}
	return dst
}

// AppendHeartbeatFrame appends a heartbeat frame. All heartbeat frames are identical.
func AppendHeartbeatFrame(dst []byte) []byte {
	return appendFrame(dst, FrameHeartbeat, 0, nil)
}

func appendFrame(dst []byte, t FrameType, channel uint16, payload []byte) []byte {
	dst = appendFrameHeader(dst, t, channel, uint32(len(payload)))
	dst = append(dst, payload...)
	return append(dst, FrameEnd)
}

func appendFrameHeader(dst []byte, t FrameType, channel uint16, size uint32) []byte {
	dst = append(dst, byte(t), byte(channel>>8), byte(channel))
	return binary.BigEndian.AppendUint32(dst, size)
}
