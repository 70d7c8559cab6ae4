package amqpwire

import (
	"encoding/binary"
	"io"
	"slices"
)

const (
	// initialBuffer keeps an idle connection cheap and still takes a burst of
	// small frames in one read.
	initialBuffer = 8192
	// maxEmptyReads is how often a stream may return neither bytes nor an error.
	maxEmptyReads = 100
	// snippetSize is how much of a bad frame's payload a FrameError keeps.
	snippetSize = 16
	// smallFrames is after how many small frames no large one is expected. There
	// are two in front of the body of each message.
	smallFrames = 4
	// spareSize is the buffer that every frame fits into unless larger ones have
	// been negotiated.
	spareSize = DefaultFrameMax
)

// spares are buffers for large frames. A reader gives its own up after some
// small frames with nothing behind them, such as heartbeats: an idle connection
// keeps its initial buffer, and one with large frames does not begin each of
// them with a small read.
var spares = make(chan []byte, 32)

// Reader reads frames from a stream through its own buffer. It is not safe for
// concurrent use.
//
// An error of the stream does not spoil the reader: what was read of a frame
// stays buffered, and a call after, say, an expired deadline goes on with it.
type Reader struct {
	// Resized, if it is set, is told how much larger than at first the buffer is
	// now.
	Resized func(by int)

	src      io.Reader
	frameMax uint32
	initial  []byte
	buf      []byte // initial, or a larger one for a while
	small    int    // frames in a row that fit into initial
	r, w     int    // buf[r:w] is read from src but not yet returned
	err      error  // came along with the last bytes, to be returned after them
}

// NewReader returns a Reader that takes frames of up to frameMax bytes in all.
// See [Reader.SetFrameMax] for the values of frameMax.
func NewReader(r io.Reader, frameMax uint32) *Reader {
	initial := make([]byte, initialBuffer)
	return &Reader{src: r, frameMax: limitFrameMax(frameMax), initial: initial, buf: initial}
}

// SetFrameMax changes the limit for the frames to come, as negotiation does. It
// counts the whole frame, [FrameOverhead] included. There is no reading without
// a limit: 0 stands for [DefaultFrameMax], values below [MinFrameMax] for that.
func (r *Reader) SetFrameMax(n uint32) { r.frameMax = limitFrameMax(n) }

// Buffered returns the number of bytes read from the stream but not yet
// returned. After 0 the next ReadFrame may block; after any other number it may
// too, if those bytes are only part of a frame.
func (r *Reader) Buffered() int { return r.w - r.r }

// Ready reports whether the next ReadFrame returns at once, with a frame that
// has been read whole or with an error.
func (r *Reader) Ready() bool {
	if r.err != nil {
		return true
	}
	head := r.buf[r.r:r.w]
	if len(head) < frameHeaderSize {
		return false
	}
	size := binary.BigEndian.Uint32(head[3:])
	return size > r.frameMax-FrameOverhead || len(head) >= int(size)+FrameOverhead
}

// ReadProtocolHeader reads the eight bytes a client opens with, whatever they
// are. The error is io.EOF if there are none, io.ErrUnexpectedEOF if there are
// fewer.
func (r *Reader) ReadProtocolHeader() (h [8]byte, err error) {
	if err := r.fill(len(h)); err != nil {
		return h, err
	}
	copy(h[:], r.buf[r.r:])
	r.r += len(h)
	return h, nil
}

// ReadFrame reads the next frame, of whatever type. A malformed frame is a
// [*FrameError]. Errors of the stream pass through: io.EOF only between frames,
// io.ErrUnexpectedEOF inside one.
func (r *Reader) ReadFrame() (Frame, error) {
	if err := r.fill(frameHeaderSize); err != nil {
		return Frame{}, err
	}
	head := r.buf[r.r:]
	f := Frame{Type: FrameType(head[0]), Channel: binary.BigEndian.Uint16(head[1:])}
	size, limit := binary.BigEndian.Uint32(head[3:]), r.frameMax-FrameOverhead
	if size > limit {
		return Frame{}, &FrameError{Reason: FrameTooLarge, Type: f.Type, Channel: f.Channel, Size: size, Max: limit}
	}
	total := int(size) + FrameOverhead
	if err := r.fill(total); err != nil {
		return Frame{}, err
	}
	// The capacity ends with the payload, lest an append reach the next frame.
	f.Payload = r.buf[r.r+frameHeaderSize : r.r+total-1 : r.r+total-1]
	if end := r.buf[r.r+total-1]; end != FrameEnd {
		return Frame{}, &FrameError{
			Reason: BadEnd, Type: f.Type, Channel: f.Channel, Size: size, Max: limit, End: end,
			Payload: slices.Clone(f.Payload[:min(len(f.Payload), snippetSize)]),
		}
	}
	r.r += total
	if r.small++; total > initialBuffer {
		r.small = 0
	}
	return f, nil
}

// fill reads until n bytes are buffered. Room is made by moving what is
// buffered to the front and, once it fills the buffer, by a larger one: a size
// that was only announced costs nothing.
func (r *Reader) fill(n int) error {
	if r.r == r.w {
		r.r, r.w = 0, 0
		if len(r.buf) > initialBuffer && r.small >= smallFrames {
			r.shrink()
		}
	}
	for empty := 0; r.w-r.r < n; {
		if err := r.err; err != nil {
			r.err = nil
			if err == io.EOF && r.w > r.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		r.makeRoom(n)
		read, err := r.src.Read(r.buf[r.w:])
		r.w += read
		r.err = err
		if read == 0 && err == nil {
			if empty++; empty == maxEmptyReads {
				return io.ErrNoProgress
			}
			continue
		}
		empty = 0
	}
	return nil
}

func (r *Reader) makeRoom(n int) {
	if r.r+n <= len(r.buf) {
		return
	}
	if r.r > 0 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.w == len(r.buf) {
		r.grow()
	}
}

func (r *Reader) grow() {
	var larger []byte
	if len(r.buf) < spareSize {
		select {
		case larger = <-spares:
		default:
		}
	}
	if larger == nil {
		larger = make([]byte, 2*len(r.buf))
	}
	r.w = copy(larger, r.buf)
	r.use(larger)
}

// shrink goes back to the initial buffer when nothing is buffered.
func (r *Reader) shrink() {
	if len(r.buf) == spareSize {
		select {
		case spares <- r.buf:
		default:
		}
	}
	r.use(r.initial)
}

func (r *Reader) use(buf []byte) {
	r.buf = buf
	if r.Resized != nil {
		r.Resized(len(buf) - initialBuffer)
	}
}
