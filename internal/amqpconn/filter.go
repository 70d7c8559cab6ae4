package amqpconn

import (
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// filter is the transport of the client. It preserves properties that are present with an empty value or the value 0, such
// as priority 0: the client neither reports nor writes them. The filter marks them in the content headers that the client
// reads, and replaces the marks in the content headers that it writes. In addition, it packs headers that the client cannot
// decode: see HeaderUnreadable.
type filter struct {
	net.Conn
	in, out rewriter
	max     atomic.Int32 // the negotiated maximum size of a frame
	ready   []byte       // rewritten data that the client has not read yet
	unread  []byte       // buffer of ready
	err     error        // error of the last read, returned after ready
	written []byte       // buffer of Write
}

// maxFrame is the maximum size of a frame that the client proposes to the broker.
const maxFrame = amqpwire.DefaultFrameMax

func newFilter(c net.Conn) *filter {
	f := &filter{Conn: c}
	f.max.Store(maxFrame)
	f.in = rewriter{rewrite: receive, max: &f.max, received: true}
	f.out = rewriter{rewrite: send, max: &f.max, skip: int64(len("AMQP\x00\x00\x09\x01"))}
	return f
}

// Read implements net.Conn.
func (f *filter) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		var n int
		n, f.err = f.Conn.Read(p)
		f.unread = f.in.append(f.unread[:0], p[:n])
		f.ready = f.unread
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// Write implements net.Conn. The client does not call it concurrently.
func (f *filter) Write(p []byte) (int, error) {
	f.written = f.out.append(f.written[:0], p)
	if _, err := f.Conn.Write(f.written); err != nil {
		return 0, err
	}
	if cap(f.written) > maxFrame {
		f.written = nil
	}
	return len(p), nil
}

// rewriter replaces the payloads of content header frames in a stream of frames.
type rewriter struct {
	// rewrite appends the new payload to dst.
	rewrite  func(dst, payload []byte) []byte
	max      *atomic.Int32
	received bool // whether the broker writes the stream

	held []byte // beginning of a frame whose header, or whose content header, is incomplete
	skip int64  // number of bytes until the next frame
}

// append appends the rewritten p to dst. It holds back an incomplete content header.
func (r *rewriter) append(dst, p []byte) []byte {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, int64(len(p)))
			dst, p, r.skip = append(dst, p[:n]...), p[n:], r.skip-n
			continue
		}
		n := min(r.needed()-len(r.held), len(p))
		r.held, p = append(r.held, p[:n]...), p[n:]
		switch {
		case len(r.held) < r.needed():
			continue
		case r.isContent():
			dst = r.frame(dst, r.held)
		default:
			dst, r.skip = append(dst, r.held...), r.size()-frameHead
		}
		r.held = r.held[:0]
	}
	return dst
}

const frameHead = 7 // type, channel, size

// size returns the size of the held frame, which can exceed an int of 32 bits.
func (r *rewriter) size() int64 {
	return int64(binary.BigEndian.Uint32(r.held[3:])) + amqpwire.FrameOverhead
}

// maxContentHeader is the maximum size of a received content header frame that the filter accepts. RabbitMQ sends frames that
// are larger than negotiated if it has added headers to a message.
const maxContentHeader = 16 << 20

// isContent reports whether the held frame is a content header to rewrite.
func (r *rewriter) isContent() bool {
	limit := int64(r.max.Load())
	if r.received {
		limit = maxContentHeader
	}
	size := r.size()
	return amqpwire.FrameType(r.held[0]) == amqpwire.FrameHeader && size <= limit
}

// needed returns the number of bytes that the rewriter must hold: the head of a frame, or a complete content header.
func (r *rewriter) needed() int {
	if len(r.held) >= frameHead && r.isContent() {
		return int(r.size())
	}
	return frameHead
}

// frame appends a content header frame.
func (r *rewriter) frame(dst, frame []byte) []byte {
	start := len(dst)
	dst = append(dst, frame[:frameHead]...)
	dst = r.rewrite(dst, frame[frameHead:len(frame)-1])
	dst = append(dst, frame[len(frame)-1])
	if limit := int(r.max.Load()); len(dst)-start > limit {
		if !r.received || len(frame) <= limit && !needsPacking(frame[frameHead:len(frame)-1]) {
			return append(dst[:start], frame...) // the client accepts the original frame, or has written it
		}
		return appendMoved(dst[:start], frame, limit)
	}
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-amqpwire.FrameOverhead))
	return dst
}

// Marks of properties that are present although their value is empty or 0. The client sees the property delivery-mode
// with the mark zeroMarked and a bit for the priority and the headers. It sees other properties with the value
// zeroText.
const (
	zeroMarked   = 0x80
	zeroPriority = 0x40
	zeroHeaders  = 0x20
	zeroPlain    = 0x1F // the bits of an unmarked delivery mode

	zeroText = "\x00\x00reprise: empty\x00\x00"
)

// content is a content header whose properties are split into a sequence of encoded values.
type content struct {
	head   []byte // class, weight, body size
	values [16][]byte
	flags  amqpwire.PropertyFlags
}

const contentHead = 12

// split reports whether it could split the payload.
func (c *content) split(payload []byte) bool {
	if len(payload) < contentHead+2 {
		return false
	}
	word := binary.BigEndian.Uint16(payload[contentHead:])
	if word&1 != 0 { // further flags
		return false
	}
	c.head, c.flags = payload[:contentHead], amqpwire.PropertyFlags(word)
	rest := payload[contentHead+2:]
	for i := range c.values {
		if c.flags&flag(i) == 0 {
			continue
		}
		n := 0
		switch flag(i) {
		case amqpwire.PropHeaders:
			if len(rest) < 4 {
				return false
			}
			n = 4 + int(binary.BigEndian.Uint32(rest))
		case amqpwire.PropDeliveryMode, amqpwire.PropPriority:
			n = 1
		case amqpwire.PropTimestamp:
			n = 8
		default:
			if len(rest) < 1 {
				return false
			}
			n = 1 + int(rest[0])
		}
		if n < 0 || len(rest) < n {
			return false
		}
		c.values[i], rest = rest[:n], rest[n:]
	}
	return len(rest) == 0
}

// flag returns the flag of the property with the given position on the wire.
func flag(i int) amqpwire.PropertyFlags { return 0x8000 >> i }

// Positions of properties on the wire.
const (
	posHeaders      = 2
	posDeliveryMode = 3
	posPriority     = 4
)

func (c *content) set(pos int, value []byte) {
	c.values[pos] = value
	c.flags |= flag(pos)
}

func (c *content) append(dst []byte) []byte {
	dst = append(dst, c.head...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.flags))
	for _, v := range c.values {
		dst = append(dst, v...)
	}
	return dst
}

var (
	emptyText  = []byte{0}
	emptyTable = []byte{0, 0, 0, 0}
	markedText = append([]byte{byte(len(zeroText))}, zeroText...)
)

// isText reports whether a property is a short string that the client knows.
func isText(i int) bool {
	const others = amqpwire.PropHeaders | amqpwire.PropDeliveryMode | amqpwire.PropPriority | amqpwire.PropTimestamp | amqpwire.PropClusterID
	return flag(i)&others == 0 && flag(i) > amqpwire.PropClusterID
}

// receive appends a received content header with marks for the properties that the client would not report, and with
// headers that it can decode.
func receive(dst, payload []byte) []byte {
	var c content
	if !c.split(payload) {
		return append(dst, payload...)
	}
	if packed := c.pack(); c.mark() || packed {
		return c.append(dst)
	}
	return append(dst, payload...)
}

// mark marks the properties that the client would not report, and reports whether the content has changed.
func (c *content) mark() bool {
	var mode byte
	if v := c.values[posDeliveryMode]; len(v) > 0 {
		mode = v[0] & zeroPlain
	}
	marked := false
	for i, v := range c.values {
		switch {
		case i == posPriority && len(v) == 1 && v[0] == 0:
			mode |= zeroPriority
		case i == posHeaders && slices.Equal(v, emptyTable):
			mode |= zeroHeaders
		case isText(i) && len(v) == 1:
			c.values[i] = markedText
			marked = true
		}
	}
	if mode > zeroPlain || marked {
		mode |= zeroMarked
	}
	if mode&zeroMarked == 0 && (len(c.values[posDeliveryMode]) == 0 || c.values[posDeliveryMode][0] == mode) {
		return false
	}
	c.set(posDeliveryMode, []byte{mode})
	return true
}

// pack packs the headers that the client cannot decode, and reports whether there are any.
func (c *content) pack() bool {
	v := c.values[posHeaders]
	if len(v) <= len(emptyTable) {
		return false
	}
	c.values[posHeaders] = pack(v)
	return len(c.values[posHeaders]) != len(v)
}

func needsPacking(payload []byte) bool {
	var c content
	return c.split(payload) && c.pack()
}

// marksRoom is the maximum number of bytes that the marks of empty properties add.
const marksRoom = 256

// appendMoved appends a received content header frame whose headers are too large, and moves them to the body.
func appendMoved(dst, frame []byte, limit int) []byte {
	var c content
	if !c.split(frame[frameHead:len(frame)-1]) || c.values[posHeaders] == nil {
		return append(dst, frame...)
	}
	moved := c.move(limit)
	c.mark()
	size := c.head[4:contentHead]
	binary.BigEndian.PutUint64(size, binary.BigEndian.Uint64(size)+uint64(len(moved)))
	start := len(dst)
	dst = append(c.append(append(dst, frame[:frameHead]...)), amqpwire.FrameEnd)
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-amqpwire.FrameOverhead))
	return amqpwire.AppendBodyFrames(dst, binary.BigEndian.Uint16(frame[1:]), moved, uint32(limit))
}

// size returns the size of the content header frame.
func (c *content) size() int {
	size := amqpwire.FrameOverhead + contentHead + 2
	for _, v := range c.values {
		size += len(v)
	}
	return size
}

// move removes the headers that do not fit into a frame, and returns them.
func (c *content) move(limit int) []byte {
	table, moved := move(c.values[posHeaders], limit-(c.size()-len(c.values[posHeaders]))-marksRoom)
	c.values[posHeaders] = table
	return moved
}

// send appends a content header of the client without marks, and with the unpacked headers.
func send(dst, payload []byte) []byte {
	var c content
	if !c.split(payload) {
		return append(dst, payload...)
	}
	var mode byte
	if v := c.values[posDeliveryMode]; len(v) > 0 {
		mode = v[0]
	}
	packed := len(c.values[posHeaders]) > 0
	if packed {
		table := unpack(c.values[posHeaders])
		packed = len(table) != len(c.values[posHeaders])
		c.values[posHeaders] = table
	}
	if mode&zeroMarked == 0 {
		if packed {
			return c.append(dst)
		}
		return append(dst, payload...)
	}
	c.set(posDeliveryMode, []byte{mode & zeroPlain})
	if mode&zeroPriority != 0 {
		c.set(posPriority, emptyText)
	}
	if mode&zeroHeaders != 0 {
		c.set(posHeaders, emptyTable)
	}
	for i, v := range c.values {
		if isText(i) && slices.Equal(v, markedText) {
			c.values[i] = emptyText
		}
	}
	return c.append(dst)
}
