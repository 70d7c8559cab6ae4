package testkit

import "encoding/binary"

// A frameScanner finds the AMQP frames in one direction of a connection:
//
//	type(1) channel(2) size(4) payload(size) 0xCE
//
// A stream may begin with the protocol header, "AMQP" and four more bytes, which is not a frame. The scanner does not
// count heartbeats, because they would make the number of a frame depend on time.
type frameScanner struct {
	started bool
	opaque  bool    // the stream is not AMQP, so the scanner does not find frames
	skip    int     // remaining bytes of the protocol header
	head    [7]byte // the header of the current frame
	have    int     // number of bytes in head
	left    uint64  // remaining bytes after head, including the end octet
	method  [4]byte // the first bytes of the payload: the class and the method
	known   int     // number of bytes in method
	read    bool    // the last call of next has read the method of a method frame
}

const (
	protocolHeaderSize = 8
	frameMethod        = 1
	frameHeartbeat     = 8
	frameEnd           = 0xCE
)

var (
	basicAck  = [4]byte{0, 60, 0, 80}
	basicNack = [4]byte{0, 60, 0, 120}
)

// begins reports whether first, the next byte, is the first byte of a counted frame.
func (s *frameScanner) begins(first byte) bool {
	return !s.opaque && s.skip == 0 && s.have == 0 && first != frameHeartbeat &&
		(s.started || first != 'A')
}

// next reads the first part of data, which must not be empty. It returns the length of that part, and whether the part
// completes a counted frame. It never reads beyond the end of a frame.
func (s *frameScanner) next(data []byte) (n int, ended bool) {
	s.read = false
	if !s.started {
		s.started = true
		if data[0] == 'A' {
			s.skip = protocolHeaderSize
		}
	}
	switch {
	case s.opaque:
		return len(data), false
	case s.skip > 0:
		n = min(len(data), s.skip)
		s.skip -= n
		return n, false
	case s.have < len(s.head):
		n = copy(s.head[s.have:], data)
		s.have += n
		if s.have == len(s.head) {
			s.left = uint64(binary.BigEndian.Uint32(s.head[3:])) + 1
			s.known = 0
		}
		return n, false
	}
	n = int(min(uint64(len(data)), s.left))
	if s.known < len(s.method) {
		n = copy(s.method[s.known:], data[:n])
		s.known += n
		s.read = s.head[0] == frameMethod && s.known == len(s.method)
	}
	s.left -= uint64(n)
	if s.left > 0 {
		return n, false
	}
	s.have = 0
	s.opaque = data[n-1] != frameEnd
	return n, !s.opaque && s.head[0] != frameHeartbeat
}
