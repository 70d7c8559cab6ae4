// Package wire contains an extension of the codec for both ends of a benchmark.
package wire

import (
	"bytes"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// readSize is the size of the read buffer.
const readSize = 1 << 18

// NewReader returns a reader with a buffer for a busy connection. Readers of the codec begin with a small buffer, which grows with the
// size of frames. Therefore NewReader first reads a large frame.
func NewReader(src io.Reader) (*amqpwire.Reader, error) {
	large := amqpwire.AppendBodyFrames(nil, 0, make([]byte, readSize/2), readSize)
	r := amqpwire.NewReader(io.MultiReader(bytes.NewReader(large), src), readSize)
	_, err := r.ReadFrame()
	return r, err
}
