// Package wire is what both ends of a benchmark need of the codec beyond what it
// has.
package wire

import (
	"bytes"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// readSize is what is read at once.
const readSize = 1 << 18

// NewReader returns a reader with a buffer of the size that a busy connection
// likes. The codec's own begin small, and grow with the frames that they meet: so
// this one has been shown a large frame.
func NewReader(src io.Reader) (*amqpwire.Reader, error) {
	large := amqpwire.AppendBodyFrames(nil, 0, make([]byte, readSize/2), readSize)
	r := amqpwire.NewReader(io.MultiReader(bytes.NewReader(large), src), readSize)
	_, err := r.ReadFrame()
	return r, err
}
