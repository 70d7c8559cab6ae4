package amqpwire

import (
	"bytes"
	"testing"
)

// message returns the frames of one small publication.
func message(tb testing.TB, dst []byte, body []byte) []byte {
	publish := BasicPublish{Exchange: "logs", RoutingKey: "eu.web.info"}
	properties := Properties{
		Flags:       PropContentType | PropHeaders | PropDeliveryMode | PropMessageID,
		ContentType: "application/json", DeliveryMode: 2, MessageID: "0190f5c2-7a51-7c33",
		Headers: Table{{"attempt", int32(1)}, {"tenant", "acme"}},
	}
	dst, err := AppendMethodFrame(dst, 1, &publish)
	if err != nil {
		tb.Fatal(err)
	}
	var scratch [256]byte
	list, err := properties.Append(scratch[:0])
	if err != nil {
		tb.Fatal(err)
	}
	dst = AppendHeaderFrame(dst, 1, 60, uint64(len(body)), list)
	return AppendBodyFrames(dst, 1, body, 0)
}

func BenchmarkAppendPublish(b *testing.B) {
	body := make([]byte, 1024)
	dst := message(b, nil, body)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = message(b, dst[:0], body)
	}
}

func BenchmarkParsePublish(b *testing.B) {
	stream := message(b, nil, make([]byte, 1024))
	src := bytes.NewReader(stream)
	r := NewReader(src, 0)
	next := func() Frame {
		f, err := r.ReadFrame()
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(stream)
		if _, err := ParseMethod(next().Payload); err != nil {
			b.Fatal(err)
		}
		h, err := ParseContentHeader(next().Payload)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := ParseProperties(h.Properties); err != nil {
			b.Fatal(err)
		}
		next()
	}
}

func BenchmarkReadBodyFrames(b *testing.B) {
	stream := AppendBodyFrames(nil, 1, make([]byte, 1<<20), 0)
	src := bytes.NewReader(stream)
	r := NewReader(src, 0)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(stream)
		for r.Buffered() > 0 || src.Len() > 0 {
			if _, err := r.ReadFrame(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
