package testkit

import "encoding/binary"

// A frameScanner finds the AMQP frames in one direction of a connection:
//
//	type(1) channel(2) size(4) payload(size) 0xCE
//
// A stream may begin with the protocol header, "AMQP" and four bytes more, which
// is no frame. Heartbeats are passed over: counting them would make a frame's
// number a matter of time.
type frameScanner struct {
	started bool
	opaque  bool    // this is not AMQP: no boundary is found any more
	skip    int     // bytes left of the protocol header
	head    [7]byte // of the frame that is being read
	have    int     // bytes read of head
	left    uint64  // bytes to come after a whole head, the end octet with them
}

const (
	protocolHeaderSize = 8
	frameHeartbeat     = 8
	frameEnd           = 0xCE
)

// begins says whether first, which comes next, is the first byte of a frame that
// counts.
func (s *frameScanner) begins(first byte) bool {
	return !s.opaque && s.skip == 0 && s.have == 0 && first != frameHeartbeat &&
		(s.started || first != 'A')
}

// next takes in a first part of data, which is not empty, and returns how much
// that was and whether it ended a frame that counts. It never goes past the end
// of a frame.
func (s *frameScanner) next(data []byte) (n int, ended bool) {
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
		}
		return n, false
	}
	n = int(min(uint64(len(data)), s.left))
	s.left -= uint64(n)
	if s.left > 0 {
		return n, false
	}
	s.have = 0
	s.opaque = data[n-1] != frameEnd
	return n, !s.opaque && s.head[0] != frameHeartbeat
}
