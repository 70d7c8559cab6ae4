// Package wire extends the AMQP codec for benchmarks, which use it in their clients and brokers.
package wire

import (
	"bytes"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// readSize is the size of the read buffer.
const readSize = 1 << 18

// NewReader returns a reader with a large buffer, for a busy connection. The buffer of a codec's reader is small at
// first and grows with the size of the received frames. Therefore NewReader first lets the reader read a large frame.
func NewReader(src io.Reader) (*amqpwire.Reader, error) {
	large := amqpwire.AppendBodyFrames(nil, 0, make([]byte, readSize/2), readSize)
	r := amqpwire.NewReader(io.MultiReader(bytes.NewReader(large), src), readSize)
	_, err := r.ReadFrame()
	return r, err
}
