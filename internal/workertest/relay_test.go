package workertest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// relayConn is a connection that modifies the frames from the broker.
type relayConn struct {
	net.Conn
	in  *io.PipeReader
	out *io.PipeWriter // Writes are not interleaved
}

// relay returns a connection that replaces each frame from the broker with the result of rewrite.
func relay(conn net.Conn, rewrite func(frame []byte) []byte) *relayConn {
	r := &relayConn{Conn: conn}
	r.in, r.out = io.Pipe()
	go r.pump(rewrite) // runs until the connection is closed
	return r
}

func (r *relayConn) pump(rewrite func(frame []byte) []byte) {
	from := bufio.NewReader(r.Conn)
	for {
		frame := make([]byte, 7)
		_, err := io.ReadFull(from, frame)
		if err == nil {
			frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+1)...)
			_, err = io.ReadFull(from, frame[7:])
		}
		if err == nil {
			if frame = rewrite(frame); len(frame) > 0 { // an empty write would be a read without data
				_, err = r.out.Write(frame)
			}
		}
		if err != nil {
			_ = r.out.CloseWithError(err)
			return
		}
	}
}

func (r *relayConn) Read(p []byte) (int, error) { return r.in.Read(p) }

func (r *relayConn) Close() error {
	_ = r.in.Close()
	return r.Conn.Close()
}
