package reprisetest

import (
	"encoding/binary"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// frame is a whole frame as it is on the wire, or the protocol header, which
// looks like one of an unknown type.
//
//	type(1) channel(2) size(4) payload(size) 0xCE
type frame []byte

const (
	frameHead = 7
	// maxFrame is what is taken for a frame: the broker's own limit is lower.
	maxFrame = 32 << 20
)

func (f frame) kind() amqpwire.FrameType { return amqpwire.FrameType(f[0]) }
func (f frame) channel() uint16          { return binary.BigEndian.Uint16(f[1:]) }
func (f frame) payload() []byte          { return f[frameHead : len(f)-1] }

// method is what a frame calls; 0: it is no method frame.
func (f frame) method() amqpwire.MethodID {
	if f.kind() != amqpwire.FrameMethod || len(f) < frameHead+4+1 {
		return 0
	}
	return amqpwire.MethodID(binary.BigEndian.Uint32(f[frameHead:]))
}

// scanner takes one direction of a connection apart into frames. What is no AMQP
// passes as it comes.
type scanner struct {
	data   []byte // what came and has not been returned
	used   int    // of data, by the frame returned last
	begun  bool
	opaque bool
}

// feed adds what came.
func (s *scanner) feed(p []byte) {
	s.data = append(s.data[:0], s.data[s.used:]...)
	s.used = 0
	s.data = append(s.data, p...)
}

// next returns the next frame, which is valid until the next call of feed, or nil
// when there is no whole one.
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

// size is that of the frame which rest begins with, if that can be told.
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
