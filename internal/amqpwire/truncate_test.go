package amqpwire

import (
	"errors"
	"io"
	"reflect"
	"testing"
)

// sample sets every field of a struct, so that the test can truncate every part of the encoding.
func sample(pointer any) {
	v := reflect.ValueOf(pointer).Elem()
	for _, field := range v.Fields() {
		if !field.CanSet() { // noArguments
			continue
		}
		switch f := field; f.Interface().(type) {
		case string:
			f.SetString("text")
		case bool:
			f.SetBool(true)
		case Table:
			f.Set(reflect.ValueOf(sampleTable()))
		case PropertyFlags:
			f.Set(reflect.ValueOf(propAll))
		default:
			f.SetUint(0x5a)
		}
	}
}

func sampleTable() Table {
	return Table{
		{"t", true},
		{"b", int8(1)},
		{"B", uint8(1)},
		{"s", int16(1)},
		{"u", uint16(1)},
		{"I", int32(1)},
		{"i", uint32(1)},
		{"l", int64(1)},
		{"f", float32(1)},
		{"d", float64(1)},
		{"D", Decimal{1, 1}},
		{"S", "s"},
		{"x", []byte("x")},
		{"A", Array{"a", Array{nil}}},
		{"T", Timestamp(1)},
		{"F", Table{{"V", nil}}},
	}
}

// truncate passes every strict prefix of b to decode. Each prefix is a slice without spare capacity, so that reads beyond it
// panic.
func truncate(t *testing.T, b []byte, decode func([]byte) error) {
	t.Helper()
	if err := decode(b); err != nil {
		t.Errorf("complete input: unexpected error: %v", err)
	}
	for n := range b {
		if err := decode(append(make([]byte, 0, n), b[:n]...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: got error %v, want ErrMalformed", n, len(b), err)
		}
	}
}

func TestTruncatedMethods(t *testing.T) {
	for _, id := range allIDs() {
		t.Run(id.String(), func(t *testing.T) {
			m := NewMethod(id)
			sample(m)
			frame, err := AppendMethodFrame(nil, 1, m)
			if err != nil {
				t.Fatal(err)
			}
			truncate(t, frame[frameHeaderSize:len(frame)-1], func(b []byte) error {
				_, err := ParseMethod(b)
				return err
			})
		})
	}
}

func TestTruncatedContentHeader(t *testing.T) {
	var p Properties
	sample(&p)
	list, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := AppendHeaderFrame(nil, 1, 60, 1, list)
	truncate(t, frame[frameHeaderSize:len(frame)-1], func(b []byte) error {
		h, err := ParseContentHeader(b)
		if err != nil {
			return err
		}
		_, err = ParseProperties(h.Properties)
		return err
	})
}

func TestTruncatedTable(t *testing.T) {
	b, err := sampleTable().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	truncate(t, b, func(b []byte) error {
		_, err := ParseTable(b)
		return err
	})
	// Also truncate with a correct outer length, because a wrong outer length alone reveals every truncation.
	for n := range len(b) - 4 {
		cut := append([]byte{0, 0, byte(n >> 8), byte(n)}, b[4:4+n]...)
		if table, err := ParseTable(cut); err == nil {
			if again, err := table.Append(nil); err != nil || len(again) != len(cut) {
				t.Errorf("%d bytes of fields: got %v, want an error or a table of the same size", n, table)
			}
		}
	}
}

func TestTruncatedStream(t *testing.T) {
	stream := appendFrame(nil, FrameBody, 1, []byte("hello"))
	for n := range stream {
		_, err := NewReader(&once{stream[:n]}, 0).ReadFrame()
		if want := map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[n == 0]; err != want {
			t.Errorf("%d bytes: got error %v, want %v", n, err, want)
		}
	}
}

// once is a stream that returns its bytes together with io.EOF.
type once struct{ b []byte }

func (o *once) Read(dst []byte) (int, error) {
	n := copy(dst, o.b)
	o.b = o.b[n:]
	return n, io.EOF
}
