package amqpwire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func genProperties(t *rapid.T) Properties {
	p := Properties{}
	fill(t, &p)
	p.Flags = PropertyFlags(rapid.Uint16().Draw(t, "flags")) & propAll
	return p
}

// clearUnflagged clears the fields whose properties are not in Flags, because Append ignores them. The fields after Flags
// have the order of the bits.
func clearUnflagged(p Properties) Properties {
	v := reflect.ValueOf(&p).Elem()
	for i := 1; i < v.NumField(); i++ {
		if !p.Has(PropContentType >> (i - 1)) {
			v.Field(i).SetZero()
		}
	}
	return p
}

func TestPropertiesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genProperties(t)
		wire, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if have := PeekPropertyFlags(wire); have != want.Flags {
			t.Fatalf("flags: got %#x, want %#x", have, want.Flags)
		}
		have, err := ParseProperties(wire)
		if err != nil {
			t.Fatal(err)
		}
		if want = clearUnflagged(want); !equal(want, have) {
			t.Fatalf("want %+v\nhave %+v", want, have)
		}
		again, err := have.Append(nil)
		if err != nil || !bytes.Equal(wire, again) {
			t.Fatalf("%v\nwant %x\nhave %x", err, wire, again)
		}
	})
}

// Parse stores only the wanted properties, but validates the whole list.
func TestParseWantedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := genProperties(t)
		wire, err := all.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		wanted := PropertyFlags(rapid.Uint16().Draw(t, "wanted")) & propAll
		var have Properties
		if err := have.Parse(wire, wanted); err != nil {
			t.Fatal(err)
		}
		all.Flags &= wanted
		if want := clearUnflagged(all); !equal(want, have) {
			t.Fatalf("want %+v\nhave %+v", want, have)
		}
		cut := wire[:rapid.IntRange(0, len(wire)-1).Draw(t, "cut")]
		if err := have.Parse(cut, wanted); !errors.Is(err, ErrMalformed) {
			t.Fatalf("list of %d bytes truncated to %d: got error %v, want ErrMalformed", len(wire), len(cut), err)
		}
	})
}

func TestHas(t *testing.T) {
	p := Properties{Flags: PropHeaders | PropType}
	if !p.Has(PropHeaders) || !p.Has(PropHeaders|PropType) || p.Has(PropHeaders|PropAppID) || p.Has(PropAppID) {
		t.Errorf("Has: got a wrong result for flags %#x", p.Flags)
	}
}

func TestPropertyFlagWords(t *testing.T) {
	want := Properties{Flags: PropPriority, Priority: 5}
	for name, wire := range map[string]string{
		"one word":                "\x08\x00\x05",
		"bit 1 is ignored":        "\x08\x02\x05",
		"empty second word":       "\x08\x01\x00\x00\x05",
		"maximum number of words": "\x08\x01\x00\x01\x00\x01\x00\x00\x05",
	} {
		p, err := ParseProperties([]byte(wire))
		if err != nil || !equal(want, p) {
			t.Errorf("%s: got %+v, %v; want %+v", name, p, err, want)
		}
		if have := PeekPropertyFlags([]byte(wire)); have != PropPriority {
			t.Errorf("%s: got flags %#x, want %#x", name, have, PropPriority)
		}
	}
	for name, wire := range map[string]string{
		"nothing":                 "",
		"half a word":             "\x08",
		"no second word":          "\x08\x01",
		"property in second word": "\x08\x01\x80\x00\x05",
		"too many words":          "\x08\x01\x00\x01\x00\x01\x00\x01\x00\x00\x05",
		"no value":                "\x08\x00",
		"remaining bytes":         "\x08\x00\x05\x05",
		"bad headers":             "\x20\x00\x00\x00\x00\x03\x01aZ",
	} {
		if p, err := ParseProperties([]byte(wire)); !errors.Is(err, ErrMalformed) || !equal(Properties{}, p) {
			t.Errorf("%s: got %+v, %v; want no properties and ErrMalformed", name, p, err)
		}
	}
	if have := PeekPropertyFlags([]byte{0xff}); have != 0 {
		t.Errorf("flags of half a word: got %#x, want 0", have)
	}
}

func TestPropertiesAppendErrors(t *testing.T) {
	for name, p := range map[string]Properties{
		"long string":  {Flags: PropUserID, UserID: strings.Repeat("a", 256)},
		"unknown type": {Flags: PropHeaders, Headers: Table{{"a", 1}}},
		"unknown flag": {Flags: PropType | 1},
	} {
		if b, err := p.Append([]byte("kept")); err == nil || string(b) != "kept" {
			t.Errorf("%s: got %q, %v; want an error", name, b, err)
		}
	}
}

func TestParseContentHeaderErrors(t *testing.T) {
	for name, payload := range map[string]string{
		"weight":   "\x00\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"no flags": "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"no size":  "\x00\x3c\x00\x00\x00",
	} {
		if h, err := ParseContentHeader([]byte(payload)); !errors.Is(err, ErrMalformed) || h.Properties != nil {
			t.Errorf("%s: got %+v, %v; want ErrMalformed", name, h, err)
		}
	}
}
