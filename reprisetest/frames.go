package reprisetest

import (
	"encoding/binary"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// frame is a complete frame in wire format. It can also be the protocol header, whose first byte looks
// like an unknown frame type.
//
//	type(1) channel(2) size(4) payload(size) 0xCE
type frame []byte

const (
	frameHead = 7
	// maxFrame is the largest payload that counts as a frame. The limit of the broker is lower.
	maxFrame = 32 << 20
)

func (f frame) kind() amqpwire.FrameType { return amqpwire.FrameType(f[0]) }
func (f frame) channel() uint16          { return binary.BigEndian.Uint16(f[1:]) }
func (f frame) payload() []byte          { return f[frameHead : len(f)-1] }

// method returns the method of a frame, or 0 if it is not a method frame.
func (f frame) method() amqpwire.MethodID {
	if f.kind() != amqpwire.FrameMethod || len(f) < frameHead+4+1 {
		return 0
	}
	return amqpwire.MethodID(binary.BigEndian.Uint32(f[frameHead:]))
}

// scanner splits one direction of a connection into frames. It forwards data that is not AMQP
// unchanged.
type scanner struct {
	data   []byte // received data that is not yet returned
	used   int    // number of bytes of data that the last frame used
	begun  bool
	opaque bool
}

// feed adds received data.
func (s *scanner) feed(p []byte) {
	s.data = append(s.data[:0], s.data[s.used:]...)
	s.used = 0
	s.data = append(s.data, p...)
}

// next returns the next frame, or nil if the frame is incomplete. The frame is valid until the next call to feed.
func (s *scanner) next() frame {
	rest := s.data[s.used:]
	size, ok := s.size(rest)
	if !ok || len(rest) < size {
		return nil
	}
	s.begun = true
	s.used += size
	return rest[:size:size]
}

// size returns the size of the frame at the start of rest, and whether the size is known.
func (s *scanner) size(rest []byte) (size int, ok bool) {
	if len(rest) == 0 {
		return 0, false
	}
	switch t := amqpwire.FrameType(rest[0]); {
	case s.opaque:
		return len(rest), true
	case !s.begun && t == 'A':
		return len(amqpwire.ProtocolHeader), true
	case t != amqpwire.FrameMethod && t != amqpwire.FrameHeader && t != amqpwire.FrameBody && t != amqpwire.FrameHeartbeat:
		s.opaque = true
		return len(rest), true
	case len(rest) < frameHead:
		return 0, false
	}
	payload := binary.BigEndian.Uint32(rest[3:])
	if payload > maxFrame {
		s.opaque = true
		return len(rest), true
	}
	return int(payload) + amqpwire.FrameOverhead, true
}
