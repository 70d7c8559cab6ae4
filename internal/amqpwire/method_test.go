package amqpwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMethodRoundTrip(t *testing.T) {
	for _, id := range allIDs() {
		t.Run(id.String(), rapid.MakeCheck(func(t *rapid.T) {
			want := NewMethod(id)
			fill(t, want)
			payload := binary.BigEndian.AppendUint32(nil, uint32(id))
			payload, err := Append(payload, want)
			if err != nil {
				t.Fatal(err)
			}
			have, err := ParseMethod(payload)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Append(payload[:4:4], have)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(payload, again) {
				t.Fatalf("second encoding:\nwant %x\nhave %x", payload, again)
			}
			if !equal(want, have) {
				t.Fatalf("want %+v\nhave %+v", want, have)
			}
		}))
	}
}

// A parse into a reused method must not keep values of the previous parse.
func TestParseSetsEveryField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom(allIDs()).Draw(t, "id")
		m, zero := NewMethod(id), NewMethod(id)
		fill(t, m)
		args, err := Append(nil, zero)
		if err != nil {
			t.Fatal(err)
		}
		if err := Parse(args, m); err != nil {
			t.Fatal(err)
		}
		if !equal(zero, m) {
			t.Fatalf("want %+v\nhave %+v", zero, m)
		}
	})
}

func TestMethodIDs(t *testing.T) {
	ids := allIDs()
	if want := 66; len(ids) != want {
		t.Errorf("methods: got %d, want %d", len(ids), want)
	}
	var content []string
	for _, id := range ids {
		m := NewMethod(id)
		if m.ID() != id {
			t.Errorf("ID of NewMethod(%v): got %v", id, m.ID())
		}
		name := strings.NewReplacer(".", "", "-", "").Replace(id.String())
		if typ := reflect.TypeOf(m).Elem().Name(); !strings.EqualFold(typ, name) {
			t.Errorf("type of %v: got %s, want %s in any case", id, typ, name)
		}
		if id.HasContent() {
			content = append(content, id.String())
		}
	}
	if have, want := strings.Join(content, " "), "basic.publish basic.return basic.deliver basic.get-ok"; have != want {
		t.Errorf("methods with content: got %s, want %s", have, want)
	}
	if id := IDExchangeUnbindOk; id.Class() != 40 || id.Method() != 51 {
		t.Errorf("%v: got ID %d.%d, want 40.51", id, id.Class(), id.Method())
	}
	if have, want := MethodID(60<<16|99).String(), "method 60.99"; have != want {
		t.Errorf("unknown method: got name %q, want %q", have, want)
	}
}

func TestParseMethodErrors(t *testing.T) {
	_, err := ParseMethod([]byte{0, 60, 0, 99, 1})
	var unknown *UnknownMethodError
	if !errors.As(err, &unknown) || unknown.ID != 60<<16|99 {
		t.Errorf("unknown method: got error %v, want an UnknownMethodError with ID 60.99", err)
	}
	for name, payload := range map[string]string{
		"empty":           "",
		"no method":       "\x00\x3c\x00",
		"remaining bytes": "\x00\x55\x00\x0b\x00",
		"short string":    "\x00\x3c\x00\x15\x05ctag",
		"long table":      "\x00\x32\x00\x0a\x00\x00\x01q\x00\xff\xff\xff\xff",
	} {
		m, err := ParseMethod([]byte(payload))
		if m != nil || !errors.Is(err, ErrMalformed) || errors.Is(err, ErrUTF8) {
			t.Errorf("%s: got %v, %v; want ErrMalformed", name, m, err)
		}
	}
}

func TestUTF8(t *testing.T) {
	const bad = "\xff"
	args, err := Append(nil, &QueueBind{Queue: "q", Exchange: bad})
	if err != nil {
		t.Fatal(err)
	}
	if err := Parse(args, new(QueueBind)); !errors.Is(err, ErrUTF8) || !errors.Is(err, ErrMalformed) {
		t.Errorf("queue.bind: %v", err)
	}
	args, err = Append(nil, &BasicPublish{Exchange: bad, RoutingKey: bad})
	if err != nil {
		t.Fatal(err)
	}
	if err := Parse(args, new(BasicPublish)); err != nil {
		t.Errorf("basic.publish: %v", err)
	}
}

func TestReservedFieldsAcceptAnyValue(t *testing.T) {
	var publish BasicPublish
	// The ticket and all unused bits of the last octet may have any value.
	if err := Parse([]byte("\xff\xff\x01x\x01k\xfd"), &publish); err != nil {
		t.Error(err)
	}
	mustEqual(t, BasicPublish{Exchange: "x", RoutingKey: "k", Mandatory: true}, publish)

	var open ConnectionOpen
	if err := Parse([]byte("\x01/\x02\xff\xfe\xff"), &open); err != nil {
		t.Error(err)
	}
	mustEqual(t, ConnectionOpen{VirtualHost: "/"}, open)

	if err := Parse([]byte("\x00\x00\x00\x02\xff\xfe"), new(ChannelOpenOk)); err != nil {
		t.Error(err)
	}
}

func TestAppendRejectsLongShortStrings(t *testing.T) {
	long := strings.Repeat("a", 256)
	dst := []byte("kept")
	for _, m := range []Method{
		&BasicPublish{RoutingKey: long},
		&ConnectionClose{ReplyText: long},
		&QueueDeclare{Arguments: Table{{Name: long}}},
		&QueueDeclare{Arguments: Table{{Name: "n", Value: 1}}},
	} {
		b, err := Append(dst, m)
		if err == nil || string(b) != "kept" {
			t.Errorf("%v: got %q, %v; want an error", m.ID(), b, err)
		}
		b, err = AppendMethodFrame(dst, 1, m)
		if err == nil || string(b) != "kept" {
			t.Errorf("frame of %v: got %q, %v; want an error", m.ID(), b, err)
		}
	}
	if _, err := Append(nil, &BasicPublish{RoutingKey: long[:255]}); err != nil {
		t.Error(err)
	}
	_, err := Append(nil, &QueueDeclare{Arguments: Table{{"a", Table{{"b", Array{true, int(1)}}}}}})
	const want = `amqpwire: queue.declare: field "a": field "b": cannot encode Go type int as an AMQP field`
	if err == nil || err.Error() != want {
		t.Errorf("error: got %v, want %s", err, want)
	}
}
