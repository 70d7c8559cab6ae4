package amqpwire

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
)

// allocated returns the number of bytes that one call of f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A length of 4 GiB without data must not cause large allocations.
func TestLengthWithoutDataDoesNotAllocate(t *testing.T) {
	const limit = 64 << 10
	const huge = "\xff\xff\xff\xff"
	table := func(value string) []byte {
		return append([]byte{0, 0, 0, byte(3 + len(value)), 1, 'a'}, append([]byte(value), 0)...)
	}
	parse := func(parse func([]byte) error, b []byte) func() error { return func() error { return parse(b) } }
	asTable := func(b []byte) error { _, err := ParseTable(b); return err }
	asMethod := func(b []byte) error { _, err := ParseMethod(b); return err }
	asProperties := func(b []byte) error { _, err := ParseProperties(b); return err }

	for name, f := range map[string]func() error{
		"table":         parse(asTable, []byte(huge)),
		"string":        parse(asTable, table("S"+huge)),
		"binary":        parse(asTable, table("x"+huge)),
		"inner table":   parse(asTable, table("F"+huge)),
		"inner array":   parse(asTable, table("A"+huge)),
		"arguments":     parse(asMethod, []byte("\x00\x32\x00\x0a\x00\x00\x00\x00"+huge)),
		"long string":   parse(asMethod, []byte("\x00\x0a\x00\x14"+huge)),
		"reserved":      parse(asMethod, []byte("\x00\x14\x00\x0b"+huge)),
		"headers":       parse(asProperties, []byte("\x20\x00"+huge)),
		"frame":         func() error { return readOne("\x03\x00\x01\x7f\xff\xff\x00") },
		"too large":     func() error { return readOne("\x03\x00\x01" + huge) },
		"partial frame": func() error { return readOne("\x03\x00\x01\x7f\xff\xff\x00partial") },
	} {
		var err error
		size := allocated(func() { err = f() })
		var frameErr *FrameError
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &frameErr) {
			t.Errorf("%s: unexpected error: %v", name, err)
		}
		if size > limit {
			t.Errorf("%s: got %d allocated bytes, want at most %d", name, size, limit)
		}
	}
}

func readOne(stream string) error {
	_, err := NewReader(bytes.NewReader([]byte(stream)), 1<<31-1).ReadFrame()
	return err
}

func TestFramesDoNotAllocate(t *testing.T) {
	frame := appendFrame(nil, FrameBody, 1, make([]byte, 100))
	src := bytes.NewReader(bytes.Repeat(frame, 2000))
	r := NewReader(src, 0)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := r.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("allocations per frame: got %v, want 0", n)
	}
	dst := make([]byte, 0, 4096)
	publish := &BasicPublish{Exchange: "logs", RoutingKey: "info"}
	if n := testing.AllocsPerRun(1000, func() {
		b, err := AppendMethodFrame(dst, 1, publish)
		if err != nil {
			t.Fatal(err)
		}
		b = AppendHeaderFrame(b, 1, 60, 5, []byte{0, 0})
		AppendBodyFrames(b, 1, frame, 0)
	}); n != 0 {
		t.Errorf("allocations per written message: got %v, want 0", n)
	}
}
