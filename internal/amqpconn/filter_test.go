package amqpconn

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// readConn is a connection from which a test reads.
type readConn struct {
	net.Conn
	io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func contentFrame(t testing.TB, p amqpwire.Properties) []byte {
	t.Helper()
	properties, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}, properties...)
	return append(append([]byte{2, 0, 1, 0, 0, 0, byte(len(payload))}, payload...), 0xCE)
}

// The filter forwards all bytes except those of marked content headers, however the stream is split.
func TestFilterForwardsFrames(t *testing.T) {
	body := append([]byte{3, 0, 1, 0, 0, 0, 3, 2, 2, 2}, 0xCE)
	plain := contentFrame(t, amqpwire.Properties{Flags: amqpwire.PropDeliveryMode | amqpwire.PropType, DeliveryMode: 2, Type: "t"})
	zero := contentFrame(t, amqpwire.Properties{Flags: amqpwire.PropPriority | amqpwire.PropType | amqpwire.PropDeliveryMode, DeliveryMode: 2})
	var stream, want []byte
	for range 50 {
		stream = append(append(append(append(stream, plain...), body...), zero...), body...)
	}
	filter := func(src io.Reader) *filter { return newFilter(readConn{Reader: src}) }
	marked, err := io.ReadAll(filter(bytes.NewReader(stream)))
	if err != nil || bytes.Equal(marked, stream) {
		t.Fatalf("the filter has not marked properties: %v", err)
	}
	byBytes, err := io.ReadAll(filter(iotest.OneByteReader(bytes.NewReader(stream))))
	if err != nil || !bytes.Equal(byBytes, marked) {
		t.Fatalf("single bytes: got %d bytes, %v; want the same %d bytes", len(byBytes), err, len(marked))
	}

	// Writing the marked frames restores the stream.
	in, out := net.Pipe()
	received := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(out)
		received <- b
	}()
	w := newFilter(in)
	rest := append([]byte("AMQP\x00\x00\x09\x01"), marked...)
	want = append([]byte("AMQP\x00\x00\x09\x01"), stream...)
	for len(rest) > 0 {
		n := 1 + rand.N(len(rest))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	_ = in.Close()
	if got := <-received; !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want the original %d bytes", len(got), len(want))
	}
}

// If the marked frame would exceed the maximum size of a frame, the filter does not mark it.
func TestFilterKeepsMaximumFrameSize(t *testing.T) {
	zero := contentFrame(t, amqpwire.Properties{Flags: amqpwire.PropType})
	f := newFilter(readConn{Reader: bytes.NewReader(zero)})
	f.max.Store(int32(len(zero)))
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, zero) {
		t.Errorf("got %q, %v; want the frame unchanged", got, err)
	}
}
