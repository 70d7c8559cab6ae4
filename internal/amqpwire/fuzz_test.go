package amqpwire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Each fuzz test checks that the encoding of a decoded value decodes to the same value, and then encodes to the same bytes.

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendHeartbeatFrame(nil))
	f.Add(AppendBodyFrames(AppendHeaderFrame(nil, 1, 60, 5, []byte{0, 0}), 1, []byte("hello"), 0))
	f.Add([]byte{3, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{3, 0, 1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream), MinFrameMax)
		var again []byte
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				break
			}
			if len(frame.Payload) > MinFrameMax-FrameOverhead {
				t.Fatalf("payload must have at most %d bytes: got %d", MinFrameMax-FrameOverhead, len(frame.Payload))
			}
			again = appendFrame(again, frame.Type, frame.Channel, frame.Payload)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("\nread  %x\nwrote %x", stream, again)
		}
	})
}

func FuzzParseMethod(f *testing.F) {
	for _, id := range allIDs() {
		m := NewMethod(id)
		sample(m)
		payload, err := Append(binary.BigEndian.AppendUint32(nil, uint32(id)), m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := ParseMethod(payload)
		if err != nil {
			return
		}
		args, err := Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		again := NewMethod(m.ID())
		if err := Parse(args, again); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, m, again)
		encoded, err := Append(nil, again)
		mustMatch(t, args, encoded, err)
	})
}

func FuzzParseProperties(f *testing.F) {
	var p Properties
	sample(&p)
	for flag := PropContentType; flag >= PropClusterID; flag >>= 1 {
		for _, flags := range []PropertyFlags{flag, propAll &^ flag} {
			p.Flags = flags
			list, err := p.Append(nil)
			if err != nil {
				f.Fatal(err)
			}
			frame := AppendHeaderFrame(nil, 1, 60, 1, list)
			f.Add(frame[frameHeaderSize : len(frame)-1])
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		h, err := ParseContentHeader(payload)
		if err != nil {
			return
		}
		frame := AppendHeaderFrame(nil, 1, h.ClassID, h.BodySize, h.Properties)
		mustMatch(t, payload, frame[frameHeaderSize:len(frame)-1], nil)
		p, err := ParseProperties(h.Properties)
		if err != nil {
			return
		}
		if flags := PeekPropertyFlags(h.Properties); flags != p.Flags {
			t.Fatalf("PeekPropertyFlags: got %#x, ParseProperties: got %#x", flags, p.Flags)
		}
		list, err := p.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseProperties(list)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, p, again)
		encoded, err := again.Append(nil)
		mustMatch(t, list, encoded, err)
	})
}

func FuzzParseTable(f *testing.F) {
	b, err := sampleTable().Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0, 0, 0, 0})
	f.Add(nest(MaxDepth, 'F'))
	f.Add(nest(MaxDepth+1, 'A'))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := ParseTable(b)
		if err != nil {
			return
		}
		wire, err := table.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		// The encodings may differ only in the type L and in the octets of a bool.
		if len(wire) != len(b) {
			t.Fatalf("\nread  %x\nwrote %x", b, wire)
		}
		again, err := ParseTable(wire)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, table, again)
		encoded, err := again.Append(nil)
		mustMatch(t, wire, encoded, err)
	})
}

func mustMatch(t *testing.T, want, have []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(want, have) {
		t.Fatalf("%v\nwant %x\nhave %x", err, want, have)
	}
}
