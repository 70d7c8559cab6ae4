// Package wire extends the AMQP codec for benchmarks, which use it in their clients and brokers.
package wire

import (
	"bytes"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// readSize is the size of the read buffer.
const readSize = 1 << 18

// NewReader returns a reader with a large buffer, for a busy connection. An [amqpwire.Reader] begins with a small
// buffer, which grows with the received frames. NewReader therefore makes it read a large frame first.
func NewReader(src io.Reader) (*amqpwire.Reader, error) {
	large := amqpwire.AppendBodyFrames(nil, 0, make([]byte, readSize/2), readSize)
	r := amqpwire.NewReader(io.MultiReader(bytes.NewReader(large), src), readSize)
	_, err := r.ReadFrame()
	return r, err
}
