package amqpwire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// The reader releases the buffer for a large frame after several small frames.
func TestReaderReleasesLargeBuffer(t *testing.T) {
	const size = 100_000
	stream := appendFrame(nil, FrameBody, 1, make([]byte, size))
	src := &partReader{parts: [][]byte{stream[:10], stream[10:20_000], stream[20_000:], stream}}
	sizes := []int{size, size}
	for range smallFrames {
		src.parts = append(src.parts, AppendHeartbeatFrame(nil))
		sizes = append(sizes, 0)
	}
	r := NewReader(src, 0)
	larger := 0
	r.Resized = func(by int) { larger = by }
	src.before = func(part int) {
		if larger > 0 != (part >= 2 && part < len(src.parts)) {
			t.Errorf("before part %d: got a buffer that is larger by %d bytes, want a larger buffer only from part 2 on", part, larger)
		}
		if len(r.buf) != initialBuffer+larger {
			t.Errorf("buffer: got %d bytes, but Resized reported a difference of %d", len(r.buf), larger)
		}
	}
	for _, size := range sizes {
		if f, err := r.ReadFrame(); err != nil || len(f.Payload) != size {
			t.Fatalf("payload: got %d bytes, %v; want %d", len(f.Payload), err, size)
		}
	}
	if _, err := r.ReadFrame(); err != io.EOF {
		t.Errorf("end of the stream: got error %v, want EOF", err)
	}
}

// partReader is a stream whose data arrives in parts. It calls a function before each part.
type partReader struct {
	part   int
	parts  [][]byte
	before func(part int)
	fresh  bool
}

func (w *partReader) Read(b []byte) (int, error) {
	if !w.fresh {
		w.before(w.part)
		w.fresh = true
	}
	if w.part == len(w.parts) {
		return 0, io.EOF
	}
	n := copy(b, w.parts[w.part])
	if w.parts[w.part] = w.parts[w.part][n:]; len(w.parts[w.part]) == 0 {
		w.part++
		w.fresh = false
	}
	return n, nil
}

func TestReadFrames(t *testing.T) {
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"bytes": iotest.OneByteReader,
		"early": iotest.DataErrReader,
		"half":  iotest.HalfReader,
	}
	for name, wrap := range readers {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			var stream []byte
			var want []Frame
			for range rapid.IntRange(0, 4).Draw(t, "frames") {
				f := Frame{
					Type:    FrameType(rapid.Uint8().Draw(t, "type")),
					Channel: rapid.Uint16().Draw(t, "channel"),
					Payload: bytes.Repeat([]byte{byte(len(want))}, rapid.IntRange(0, 2*initialBuffer+1).Draw(t, "size")),
				}
				want = append(want, f)
				stream = appendFrame(stream, f.Type, f.Channel, f.Payload)
			}
			src := &counter{Reader: wrap(bytes.NewReader(stream))}
			r := NewReader(src, 0)
			returned := 0
			for _, w := range want {
				f, err := r.ReadFrame()
				if err != nil || f.Type != w.Type || f.Channel != w.Channel || !bytes.Equal(f.Payload, w.Payload) {
					t.Fatalf("frame: got type %d on channel %d with %d bytes, %v; want type %d on channel %d with %d bytes", f.Type, f.Channel, len(f.Payload), err, w.Type, w.Channel, len(w.Payload))
				}
				if cap(f.Payload) != len(f.Payload) {
					t.Fatal("append to the payload would overwrite the next frame")
				}
				returned += len(f.Payload) + FrameOverhead
				if want := src.n - returned; want != r.Buffered() {
					t.Fatalf("Buffered: got %d bytes, want %d", r.Buffered(), want)
				}
			}
			for range 2 {
				if _, err := r.ReadFrame(); err != io.EOF {
					t.Fatalf("end of the stream: got error %v, want EOF", err)
				}
			}
		}))
	}
}

// counter is a stream that counts the bytes that it returns.
type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

func TestReadProtocolHeader(t *testing.T) {
	stream := AppendHeartbeatFrame(ProtocolHeader[:])
	for n := range stream {
		r := NewReader(bytes.NewReader(stream[:n]), 0)
		h, err := r.ReadProtocolHeader()
		switch {
		case n == 0 && err == io.EOF, n > 0 && n < 8 && err == io.ErrUnexpectedEOF:
		case n >= 8 && err == nil && h == ProtocolHeader && r.Buffered() == n-8:
		default:
			t.Errorf("header of %d bytes: got %q, %v; want ProtocolHeader, or an error for fewer than 8 bytes", n, h, err)
		}
	}
}

func TestFrameMax(t *testing.T) {
	for _, tc := range []struct{ set, max uint32 }{
		{0, DefaultFrameMax}, {1, MinFrameMax}, {MinFrameMax, MinFrameMax}, {8192, 8192}, {math.MaxUint32, math.MaxInt32},
	} {
		r := NewReader(strings.NewReader(""), tc.set)
		if r.frameMax != tc.max {
			t.Errorf("frame-max %d: got %d, want %d", tc.set, r.frameMax, tc.max)
		}
	}
	// The stream ends after the header, so the size alone must cause the error.
	header := []byte{3, 0, 7, 0, 0, 0x0f, 0xf8 + 1}
	r := NewReader(bytes.NewReader(header), MinFrameMax)
	for range 2 {
		_, err := r.ReadFrame()
		var have *FrameError
		if !errors.As(err, &have) {
			t.Fatal(err)
		}
		mustEqual(t, FrameError{Reason: FrameTooLarge, Type: FrameBody, Channel: 7, Size: 4089, Max: 4088}, *have)
	}
	r.SetFrameMax(MinFrameMax + 1)
	if _, err := r.ReadFrame(); err != io.ErrUnexpectedEOF {
		t.Errorf("with a higher limit: got error %v, want ErrUnexpectedEOF", err)
	}
	for _, frameMax := range []uint32{MinFrameMax, 0, 1 << 20} {
		r := NewReader(nil, frameMax)
		stream := appendFrame(nil, FrameBody, 1, make([]byte, r.frameMax-FrameOverhead))
		r.src = bytes.NewReader(stream)
		if f, err := r.ReadFrame(); err != nil || len(f.Payload) != int(r.frameMax)-FrameOverhead {
			t.Errorf("largest frame with frame-max %d: got %d bytes of payload, %v", r.frameMax, len(f.Payload), err)
		}
	}
}

func TestBadEnd(t *testing.T) {
	for _, payload := range []string{"", "short", "0123456789abcdef+more"} {
		stream := appendFrame(nil, FrameMethod, 2, []byte(payload))
		stream[len(stream)-1] = 0
		r := NewReader(bytes.NewReader(stream), 0)
		for range 2 {
			_, err := r.ReadFrame()
			var have *FrameError
			if !errors.As(err, &have) {
				t.Fatal(err)
			}
			mustEqual(t, FrameError{
				Reason: BadEnd, Type: FrameMethod, Channel: 2, Size: uint32(len(payload)), Max: DefaultFrameMax - 8,
				Payload: []byte(payload)[:min(16, len(payload))],
			}, *have)
		}
	}
}

func TestFrameErrorText(t *testing.T) {
	for want, err := range map[string]error{
		"amqpwire: frame of type 3 on channel 1: payload of 9 bytes exceeds the limit of 8": &FrameError{Reason: FrameTooLarge, Type: 3, Channel: 1, Size: 9, Max: 8},
		"amqpwire: frame of type 3 on channel 1: invalid end marker 7":                      &FrameError{Reason: BadEnd, Type: 3, Channel: 1, End: 7},
		"amqpwire: unknown method 60.99":                                                    &UnknownMethodError{ID: 60<<16 | 99},
	} {
		if have := err.Error(); have != want {
			t.Errorf("error: got %q, want %q", have, want)
		}
	}
}

// scripted is a stream that calls the next of its functions for each read.
type scripted []func([]byte) (int, error)

func (s *scripted) Read(b []byte) (int, error) {
	read := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return read(b)
}

func TestStreamErrors(t *testing.T) {
	frame := appendFrame(nil, FrameBody, 1, []byte("hello"))
	part := func(b []byte, err error) func([]byte) (int, error) {
		return func(dst []byte) (int, error) { return copy(dst, b), err }
	}

	// After an expired deadline in the middle of a frame, the reader continues with the frame.
	src := scripted{part(frame[:3], nil), part(frame[3:9], os.ErrDeadlineExceeded), part(frame[9:], nil), part(nil, nil)}
	r := NewReader(&src, 0)
	if _, err := r.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if f, err := r.ReadFrame(); err != nil || string(f.Payload) != "hello" {
		t.Errorf("frame: got %+v, %v; want a payload of hello", f, err)
	}
	if _, err := r.ReadFrame(); err != io.ErrNoProgress {
		t.Error(err)
	}

	// If an error arrives with the last byte of a frame, the reader returns the error after the frame.
	src = scripted{part(frame, io.ErrClosedPipe), part(nil, io.EOF)}
	r = NewReader(&src, 0)
	if f, err := r.ReadFrame(); err != nil || string(f.Payload) != "hello" {
		t.Errorf("frame: got %+v, %v; want a payload of hello", f, err)
	}
	if _, err := r.ReadFrame(); err != io.ErrClosedPipe {
		t.Error(err)
	}
}
