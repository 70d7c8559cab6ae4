package amqpwire

import (
	"bytes"
	"io"
	"testing"
)

func TestAppendBodyFrames(t *testing.T) {
	const limit = MinFrameMax - FrameOverhead
	for _, tc := range []struct {
		size, frames int
	}{{0, 0}, {1, 1}, {limit, 1}, {limit + 1, 2}, {3 * limit, 3}, {3*limit + 1, 4}} {
		body := make([]byte, tc.size)
		for i := range body {
			body[i] = byte(i)
		}
		dst := []byte("kept")
		stream := AppendBodyFrames(dst, 9, body, MinFrameMax)
		if want := 4 + tc.size + tc.frames*FrameOverhead; len(stream) != want {
			t.Fatalf("encoding of %d bytes: got %d bytes, want %d", tc.size, len(stream), want)
		}
		r := NewReader(bytes.NewReader(stream[4:]), MinFrameMax)
		var have []byte
		for range tc.frames {
			f, err := r.ReadFrame()
			if err != nil || f.Type != FrameBody || f.Channel != 9 {
				t.Fatalf("frame: got type %d on channel %d, %v; want FrameBody on channel 9", f.Type, f.Channel, err)
			}
			have = append(have, f.Payload...)
		}
		if _, err := r.ReadFrame(); err != io.EOF || !bytes.Equal(body, have) || string(stream[:4]) != "kept" {
			t.Errorf("body of %d bytes does not match, or error %v", tc.size, err)
		}
	}
}
