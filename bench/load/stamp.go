package load

import (
	"encoding/binary"
	"time"
)

// A stamp is the first 16 bytes of each message body:
//
//	 0           8      10         12         16
//	+-----------+------+-----------+----------+
//	| published | run  | publisher | number   |
//	+-----------+------+-----------+----------+
//	  ns, by             0 to        per publisher
//	  clock              65535       and queue
const (
	stampSize     = 16
	maxPublishers = 1 << 16
)

type stamp struct {
	published      int64
	run, publisher uint16
	number         uint32
}

func (s stamp) put(b []byte) {
	_ = b[stampSize-1]
	binary.BigEndian.PutUint64(b, uint64(s.published))
	binary.BigEndian.PutUint16(b[8:], s.run)
	binary.BigEndian.PutUint16(b[10:], s.publisher)
	binary.BigEndian.PutUint32(b[12:], s.number)
}

func readStamp(b []byte) stamp {
	_ = b[stampSize-1]
	return stamp{
		published: int64(binary.BigEndian.Uint64(b)),
		run:       binary.BigEndian.Uint16(b[8:]),
		publisher: binary.BigEndian.Uint16(b[10:]),
		number:    binary.BigEndian.Uint32(b[12:]),
	}
}

var begin = time.Now()

// clock returns the nanoseconds since the start of the process. It is monotonic, and twice as fast as time.Now.
func clock() int64 { return int64(time.Since(begin)) }
