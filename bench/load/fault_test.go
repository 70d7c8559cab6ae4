package load_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/bench/load"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// A fault changes the deliveries to a client. It is called for each delivery, with the number of deliveries so far and
// the pending messages, including the new message. It returns the messages that the client sees, and the messages that
// stay pending until the next call.
type fault func(n int, messages [][]byte) (seen, kept [][]byte)

func TestRunDetectsFaults(t *testing.T) {
	const victim = 50
	for name, c := range map[string]struct {
		fault fault
		want  string
	}{
		"lost": {func(n int, m [][]byte) (seen, kept [][]byte) {
			if n == victim {
				return nil, nil
			}
			return m, nil
		}, "without a confirm or a delivery"},
		"duplicated": {func(n int, m [][]byte) (seen, kept [][]byte) {
			if n == victim {
				return append(m, m...), nil
			}
			return m, nil
		}, "message 49 of publisher 0 was delivered twice"},
		"swapped": {func(n int, m [][]byte) (seen, kept [][]byte) {
			switch n {
			case victim:
				return nil, m
			case victim + 1:
				return [][]byte{m[1], m[0]}, nil
			}
			return m, nil
		}, "message 49 of publisher 0 was delivered after message 50"},
		"one lost and one duplicated": {func(n int, m [][]byte) (seen, kept [][]byte) {
			switch n {
			case victim:
				return nil, nil
			case victim + 1:
				return append(m, m...), nil
			}
			return m, nil
		}, "delivered twice"},
		"of another run": {func(n int, m [][]byte) (seen, kept [][]byte) {
			if n == victim {
				// Change the number of the run. At the end of the body, it precedes the publisher and the sequence number.
				end := len(m[0]) - 1
				m[0][end-8] ^= 1
			}
			return m, nil
		}, "that this run has not published"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load.Run(t.Context(), load.Options{
				URL: null(t), Count: 100, Ack: load.AckAuto, Stall: 100 * time.Millisecond,
				Dial: func(network, address string) (net.Conn, error) {
					conn, err := net.Dial(network, address)
					return &faultyConn{Conn: conn, fault: c.fault}, err
				},
			}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// faultyConn is a connection that applies a fault to its deliveries.
type faultyConn struct {
	net.Conn
	fault fault

	frames  *amqpwire.Reader
	out     bytes.Buffer
	message []byte // frames of the incomplete delivery
	n       int    // number of deliveries
	kept    [][]byte
}

func (f *faultyConn) Read(b []byte) (int, error) {
	if f.frames == nil {
		f.frames = amqpwire.NewReader(f.Conn, 0)
	}
	for f.out.Len() == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	return f.out.Read(b)
}

// next reads one frame. A delivery has three frames: the method, the header and the body.
func (f *faultyConn) next() error {
	frame, err := f.frames.ReadFrame()
	if err != nil {
		return io.EOF
	}
	raw := []byte{byte(frame.Type), byte(frame.Channel >> 8), byte(frame.Channel)}
	size := len(frame.Payload)
	raw = append(raw, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
	raw = append(append(raw, frame.Payload...), amqpwire.FrameEnd)
	id, _ := amqpwire.PeekMethodID(frame.Payload)
	switch {
	case frame.Type == amqpwire.FrameMethod && id != amqpwire.IDBasicDeliver:
		f.out.Write(raw)
		return nil
	case frame.Type == amqpwire.FrameMethod:
		f.message = nil
	}
	if f.message = append(f.message, raw...); frame.Type != amqpwire.FrameBody {
		return nil
	}
	f.n++
	seen, kept := f.fault(f.n, append(f.kept, f.message))
	f.kept = kept
	for _, m := range seen {
		f.out.Write(m)
	}
	return nil
}
