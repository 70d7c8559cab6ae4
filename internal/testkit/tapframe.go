package testkit

import (
	"encoding/binary"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// tapFrame is a frame in a Tap.
type tapFrame struct {
	Crossing
	channel uint16
	method  amqpwire.Method // nil unless the frame is a method frame
}

const (
	headerSuffix = ": header"
	bodySuffix   = ": body"
)

// frameNames contains, by channel, the method that header and body frames belong to.
type frameNames map[uint16]amqpwire.MethodID

// frame parses a frame of one direction of a connection.
func (n frameNames) frame(f amqpwire.Frame) tapFrame {
	seen := tapFrame{channel: f.Channel}
	switch f.Type {
	case amqpwire.FrameMethod:
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			seen.Name = err.Error()
			return seen
		}
		seen.method, seen.Name = m, m.ID().String()
		n[f.Channel] = m.ID()
	case amqpwire.FrameHeader:
		seen.Name = n[f.Channel].String() + headerSuffix
	case amqpwire.FrameBody:
		seen.Name = n[f.Channel].String() + bodySuffix
	default:
		seen.Name = fmt.Sprintf("frame of type %d", f.Type)
	}
	return seen
}

// wire returns the bytes of a frame.
func wire(f amqpwire.Frame) []byte {
	b := []byte{byte(f.Type), byte(f.Channel >> 8), byte(f.Channel)}
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Payload)))
	return append(append(b, f.Payload...), amqpwire.FrameEnd)
}
