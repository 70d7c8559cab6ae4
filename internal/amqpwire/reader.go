package amqpwire

import (
	"encoding/binary"
	"io"
	"slices"
)

const (
	// initialBuffer is small, so that an idle connection needs little memory, but large enough to read a burst of small
	// frames in one call.
	initialBuffer = 8192
	// maxEmptyReads is the maximum number of consecutive reads that return neither bytes nor an error.
	maxEmptyReads = 100
	// snippetSize is the maximum number of payload bytes in a FrameError.
	snippetSize = 16
	// smallFrames is the number of consecutive small frames after which the reader no longer expects a large frame. Two
	// small frames precede each body.
	smallFrames = 4
	// spareSize is the size of a spare buffer. Every frame fits into it, unless the negotiated frame-max is larger.
	spareSize = DefaultFrameMax
)

// spares are buffers for large frames. A reader returns its spare after several small frames, such as heartbeats, if no
// further data is buffered. An idle connection therefore keeps only its initial buffer, and a connection with large frames
// keeps its large buffer between them.
var spares = make(chan []byte, 32)

// Reader reads frames from a stream through an internal buffer. It is not safe for concurrent use.
//
// The reader remains usable after an error of the stream, such as an expired deadline. The received part of a frame stays in
// the buffer, and a later call continues with it.
type Reader struct {
	// Resized, if set, is called when the size of the buffer changes. The argument is the new size minus the initial
	// size.
	Resized func(by int)

	src      io.Reader
	frameMax uint32
	initial  []byte
	buf      []byte // initial buffer, or temporarily a larger buffer
	small    int    // number of consecutive frames that fit into initial
	r, w     int    // buf[r:w] has been read from src but not yet returned
	err      error  // error of the last read, returned after the bytes of that read
}

// NewReader returns a Reader that accepts frames of at most frameMax bytes. See [Reader.SetFrameMax] for the values of
// frameMax.
func NewReader(r io.Reader, frameMax uint32) *Reader {
	initial := make([]byte, initialBuffer)
	return &Reader{src: r, frameMax: limitFrameMax(frameMax), initial: initial, buf: initial}
}

// SetFrameMax changes the maximum size of later frames, usually after the negotiation. The size includes [FrameOverhead].
// A value of 0 means [DefaultFrameMax], and values below [MinFrameMax] mean MinFrameMax.
func (r *Reader) SetFrameMax(n uint32) { r.frameMax = limitFrameMax(n) }

// Buffered returns the number of bytes that were read from the stream but not returned. ReadFrame may block even if the
// number is not 0, because the bytes may be only part of a frame.
func (r *Reader) Buffered() int { return r.w - r.r }

// Ready reports whether the next ReadFrame returns without blocking, either with a complete frame or with an error.
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

// ReadProtocolHeader reads the first eight bytes of the stream, without validating them. The error is io.EOF if the stream
// is empty, and io.ErrUnexpectedEOF if it has fewer than eight bytes.
func (r *Reader) ReadProtocolHeader() (h [8]byte, err error) {
	if err := r.fill(len(h)); err != nil {
		return h, err
	}
	copy(h[:], r.buf[r.r:])
	r.r += len(h)
	return h, nil
}

// ReadFrame reads the next frame of any type. It returns a [*FrameError] for a malformed frame, and errors of the stream
// unchanged. If the stream ends, it returns io.EOF between frames and io.ErrUnexpectedEOF inside a frame.
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
	// Limit the capacity, so that an append to the payload cannot overwrite the next frame.
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

// fill reads until n bytes are buffered. To make room, it moves the buffered bytes to the front. It switches to a larger
// buffer only when received bytes fill the current buffer, so that an announced size alone does not allocate memory.
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

// shrink switches back to the initial buffer. The buffer must not contain unread bytes.
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
