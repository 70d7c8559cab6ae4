package amqpwire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// The bytes in this file follow the specification and were written by hand. A round trip cannot detect an error that encoder
// and decoder share.

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenMethodFrames(t *testing.T) {
	for _, tc := range []struct {
		method  Method
		channel uint16
		wire    string
	}{
		{&BasicPublish{Exchange: "logs", RoutingKey: "info", Mandatory: true}, 1, `
			01 0001 00000011 003c 0028
			0000  04 6c6f6773  04 696e666f  01  ce`},
		{&QueueDeclare{Queue: "q", Durable: true, Arguments: Table{{"x-max-length", int32(10)}, {"x-queue-type", "classic"}}}, 258, `
			01 0102 00000038 0032 000a
			0000  01 71  02  0000002b
			0c 782d6d61782d6c656e677468 49 0000000a
			0c 782d71756575652d74797065 53 00000007 636c6173736963  ce`},
		{&BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true, NoWait: true}, 1, `
			01 0001 0000000f 003c 0014
			0000  01 71  01 63  0a  00000000  ce`},
		{&BasicDeliver{ConsumerTag: "tag", DeliveryTag: 7, Redelivered: true, RoutingKey: "q"}, 1, `
			01 0001 00000014 003c 003c
			03 746167  0000000000000007  01  00  01 71  ce`},
		{&BasicNack{DeliveryTag: 1, Requeue: true}, 1, `
			01 0001 0000000d 003c 0078  0000000000000001  02  ce`},
		{&QueueDelete{Queue: "q", IfEmpty: true}, 1, `
			01 0001 00000009 0032 0028  0000  01 71  02  ce`},
		{&ExchangeDeclare{Exchange: "x", Type: "topic", Durable: true, Internal: true}, 1, `
			01 0001 00000013 0028 000a
			0000  01 78  05 746f706963  0a  00000000  ce`},
		{&QueueUnbind{Queue: "q", Exchange: "x", RoutingKey: "k"}, 1, `
			01 0001 00000010 0032 0032
			0000  01 71  01 78  01 6b  00000000  ce`},
		{&ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"}, 0, `
			01 0000 0000001c 000a 000b
			00000000  05 504c41494e  00000004 00750070  05 656e5f5553  ce`},
		{&ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60}, 0, `
			01 0000 0000000c 000a 001f  07ff  00020000  003c  ce`},
		{&ConnectionOpen{VirtualHost: "/"}, 0, `
			01 0000 00000008 000a 0028  01 2f  00  00  ce`},
		{&ChannelClose{ReplyCode: 404, ReplyText: "no", ClassID: 50, MethodID: 10}, 3, `
			01 0003 0000000d 0014 0028  0194  02 6e6f  0032  000a  ce`},
		{&ChannelOpenOk{}, 1, `01 0001 00000008 0014 000b  00000000  ce`},
		{&ExchangeUnbindOk{}, 1, `01 0001 00000004 0028 0033  ce`},
		{&ConfirmSelect{NoWait: true}, 1, `01 0001 00000005 0055 000a  01  ce`},
	} {
		t.Run(tc.method.ID().String(), func(t *testing.T) {
			want := unhex(t, tc.wire)
			have, err := AppendMethodFrame(nil, tc.channel, tc.method)
			if err != nil || !bytes.Equal(want, have) {
				t.Fatalf("%v\nwant %x\nhave %x", err, want, have)
			}
			f, err := NewReader(bytes.NewReader(want), 0).ReadFrame()
			if err != nil || f.Type != FrameMethod || f.Channel != tc.channel {
				t.Fatalf("frame: got type %d on channel %d, %v; want FrameMethod on channel %d", f.Type, f.Channel, err, tc.channel)
			}
			m, err := ParseMethod(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			mustEqual(t, tc.method, m)
		})
	}
}

func TestGoldenContentFrames(t *testing.T) {
	properties := Properties{
		Flags:       propAll,
		ContentType: "a/b", ContentEncoding: "gzip", Headers: Table{{"n", true}}, DeliveryMode: 2, Priority: 9,
		CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "m", Timestamp: 0x65920080,
		Type: "t", UserID: "guest", AppID: "a", ClusterID: "k",
	}
	want := unhex(t, `
		02 0001 00000041 003c 0000 0000000000000005 fffc
		03 612f62  04 677a6970  00000004 01 6e 74 01  02  09  01 63  01 72  05 3630303030
		01 6d  0000000065920080  01 74  05 6775657374  01 61  01 6b  ce
		03 0001 00000005 68656c6c6f ce
		08 0000 00000000 ce`)
	list, err := properties.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	have := AppendHeaderFrame(nil, 1, 60, 5, list)
	have = AppendBodyFrames(have, 1, []byte("hello"), 0)
	have = AppendHeartbeatFrame(have)
	if !bytes.Equal(want, have) {
		t.Fatalf("\nwant %x\nhave %x", want, have)
	}

	r := NewReader(bytes.NewReader(want), 0)
	f, err := r.ReadFrame()
	if err != nil || f.Type != FrameHeader {
		t.Fatalf("first frame: got %+v, %v; want a FrameHeader", f, err)
	}
	h, err := ParseContentHeader(f.Payload)
	if err != nil || h.ClassID != 60 || h.BodySize != 5 {
		t.Fatalf("content header: got %+v, %v; want class 60 and body size 5", h, err)
	}
	p, err := ParseProperties(h.Properties)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, properties, p)
	if f, err = r.ReadFrame(); err != nil || f.Type != FrameBody || string(f.Payload) != "hello" {
		t.Fatalf("second frame: got %+v, %v; want a FrameBody with hello", f, err)
	}
	if f, err = r.ReadFrame(); err != nil || f.Type != FrameHeartbeat || f.Channel != 0 || len(f.Payload) != 0 {
		t.Fatalf("third frame: got %+v, %v; want an empty FrameHeartbeat on channel 0", f, err)
	}
}

func TestGoldenTable(t *testing.T) {
	table := Table{
		{"t", true},
		{"b", int8(-2)},
		{"B", uint8(254)},
		{"s", int16(-2)},
		{"u", uint16(65534)},
		{"I", int32(-2)},
		{"i", uint32(0xfffffffe)},
		{"l", int64(-2)},
		{"f", float32(1.5)},
		{"d", -2.5},
		{"D", Decimal{Scale: 2, Value: 314}},
		{"S", "str"},
		{"x", []byte{0, 255}},
		{"A", Array{"a", nil, Table{}}},
		{"T", Timestamp(0x65920080)},
		{"F", Table{{"n", Array{int8(1)}}}},
		{"V", nil},
	}
	want := unhex(t, `
		0000008d
		01 74 74 01
		01 62 62 fe
		01 42 42 fe
		01 73 73 fffe
		01 75 75 fffe
		01 49 49 fffffffe
		01 69 69 fffffffe
		01 6c 6c fffffffffffffffe
		01 66 66 3fc00000
		01 64 64 c004000000000000
		01 44 44 02 0000013a
		01 53 53 00000003 737472
		01 78 78 00000002 00ff
		01 41 41 0000000c 53 00000001 61 56 46 00000000
		01 54 54 0000000065920080
		01 46 46 00000009 01 6e 41 00000002 62 01
		01 56 56`)
	have, err := table.Append(nil)
	if err != nil || !bytes.Equal(want, have) {
		t.Fatalf("%v\nwant %x\nhave %x", err, want, have)
	}
	parsed, err := ParseTable(want)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, table, parsed)
}
