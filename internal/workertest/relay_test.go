package workertest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// relayed is a connection that modifies the frames from the broker.
type relayed struct {
	net.Conn
	in  *io.PipeReader
	out *io.PipeWriter // Writes are not interleaved
}

// relay replaces each frame of the broker with the result of rewrite.
func relay(conn net.Conn, rewrite func(frame []byte) []byte) *relayed {
	r := &relayed{Conn: conn}
	r.in, r.out = io.Pipe()
	go r.pump(rewrite) // runs until the connection is closed
	return r
}

func (r *relayed) pump(rewrite func(frame []byte) []byte) {
	from := bufio.NewReader(r.Conn)
	for {
		frame := make([]byte, 7)
		_, err := io.ReadFull(from, frame)
		if err == nil {
			frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+1)...)
			_, err = io.ReadFull(from, frame[7:])
		}
		if err == nil {
			_, err = r.out.Write(rewrite(frame))
		}
		if err != nil {
			_ = r.out.CloseWithError(err)
			return
		}
	}
}

func (r *relayed) Read(p []byte) (int, error) { return r.in.Read(p) }

func (r *relayed) Close() error {
	_ = r.in.Close()
	return r.Conn.Close()
}
