package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// FrameType is the first octet of a frame.
type FrameType uint8

// The frame types of AMQP 0-9-1.
const (
	FrameMethod    FrameType = 1
	FrameHeader    FrameType = 2
	FrameBody      FrameType = 3
	FrameHeartbeat FrameType = 8
)

const (
	// FrameEnd is the last octet of every frame.
	FrameEnd = 0xCE
	// FrameOverhead is what a frame adds to its payload: type, channel, size
	// and end.
	FrameOverhead = 8
	// MinFrameMax is the smallest frame-max the specification lets a peer
	// negotiate, and so the size every peer must accept before negotiation.
	MinFrameMax = 4096
	// DefaultFrameMax stands in where a frame-max of 0 would mean no limit.
	DefaultFrameMax = 131072

	frameHeaderSize = FrameOverhead - 1
)

// ProtocolHeader is what a client of AMQP 0-9-1 sends first, and what a server
// answers when it was sent anything else.
var ProtocolHeader = [8]byte{'A', 'M', 'Q', 'P', 0, 0, 9, 1}

// Frame is one frame. The Payload aliases the buffer of the [Reader] that
// returned it and is valid until that reader's next ReadFrame.
//
// All integers are big endian.
//
//	 0      1         3             7                 size+7  size+8
//	+------+---------+-------------+-------------------+------+
//	| type | channel |    size     |      payload      | 0xCE |
//	+------+---------+-------------+-------------------+------+
//	  1 B     2 B         4 B          size bytes        1 B
//
// The negotiated frame-max counts the whole frame, so a payload holds at most
// frame-max less [FrameOverhead] bytes. A [Reader] compares the size with that
// limit before it reads the payload, and its buffer grows with the bytes that
// arrive, never with the size that was announced.
//
// A method frame holds a class, a method and the arguments:
//
//	+---------+----------+-----------------+
//	| class   | method   | arguments ...   |
//	+---------+----------+-----------------+
//	  2 B       2 B
//
// Consecutive bit arguments share octets, the first in the lowest bit; unused
// bits are written as zero and ignored when read. Bytes after the last argument
// are an error.
//
// A short string is a one byte length and that many bytes of UTF-8. Whether they
// are UTF-8 is checked where RabbitMQ does, in the arguments of the methods that
// carry no content; elsewhere anything passes.
//
// A method that carries content ([MethodID.HasContent]) is followed by one
// header frame and by body frames until body size bytes have come; there are
// none when the body is empty:
//
//	+---------+--------+-------------+-------+---------------------+
//	| class   | weight |  body size  | flags | property list ...   |
//	+---------+--------+-------------+-------+---------------------+
//	  2 B       2 B (0)    8 B         2 B
//
// The flags name the properties present, the highest bit the first. The lowest
// bit announces a further word of flags. No property is defined there, so a
// further word must be zero apart from its own lowest bit, and there are at
// most four words.
//
// A heartbeat frame has no payload and travels on channel 0.
type Frame struct {
	Type    FrameType
	Channel uint16
	Payload []byte
}

// FrameErrorReason says what is wrong with a frame.
type FrameErrorReason uint8

const (
	// FrameTooLarge is a payload larger than frame-max allows.
	FrameTooLarge FrameErrorReason = iota + 1
	// BadEnd is a frame whose last octet is not [FrameEnd].
	BadEnd
)

// FrameError reports a malformed frame. The stream has lost its framing: the
// reader that returned it returns it again on every later call.
type FrameError struct {
	Reason  FrameErrorReason
	Type    FrameType
	Channel uint16
	Size    uint32 // announced size of the payload
	Max     uint32 // largest payload allowed
	End     byte   // octet found in place of FrameEnd; BadEnd only
	Payload []byte // copy of at most the first 16 octets of the payload; BadEnd only
}

// Error describes the malformed frame.
func (e *FrameError) Error() string {
	if e.Reason == FrameTooLarge {
		return fmt.Sprintf("amqpwire: frame of type %d on channel %d: payload of %d bytes exceeds the limit of %d",
			e.Type, e.Channel, e.Size, e.Max)
	}
	return fmt.Sprintf("amqpwire: frame of type %d on channel %d: invalid end marker %d", e.Type, e.Channel, e.End)
}

// limitFrameMax gives every frame-max a bound that memory and int can hold.
func limitFrameMax(n uint32) uint32 {
	if n == 0 {
		return DefaultFrameMax
	}
	return min(max(n, MinFrameMax), math.MaxInt32)
}

// AppendMethodFrame appends a method frame. A method cannot be split, so the
// caller answers for frame-max. On error dst is returned as it came.
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
		return dst, fmt.Errorf("amqpwire: %v: arguments of %d bytes do not fit a frame", m.ID(), size)
	}
	binary.BigEndian.PutUint32(b[start+3:], uint32(size))
	return append(b, FrameEnd), nil
}

// AppendHeaderFrame appends a content header frame. The properties are encoded,
// flags and list.
func AppendHeaderFrame(dst []byte, channel, class uint16, bodySize uint64, properties []byte) []byte {
	dst = appendFrameHeader(dst, FrameHeader, channel, uint32(contentHeaderSize+len(properties)))
	dst = binary.BigEndian.AppendUint16(dst, class)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, bodySize)
	dst = append(dst, properties...)
	return append(dst, FrameEnd)
}

// AppendBodyFrames appends the body, split into as many frames as frameMax
// asks for, and nothing for an empty body. A frameMax of 0 stands for
// [DefaultFrameMax], one below [MinFrameMax] for that.
func AppendBodyFrames(dst []byte, channel uint16, body []byte, frameMax uint32) []byte {
	limit := int(limitFrameMax(frameMax)) - FrameOverhead
	frames := (len(body) + limit - 1) / limit
	dst = slices.Grow(dst, len(body)+frames*FrameOverhead)
	for part := range slices.Chunk(body, limit) {
		dst = appendFrame(dst, FrameBody, channel, part)
	}
	return dst
}

// AppendHeartbeatFrame appends a heartbeat frame, which is always the same.
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
