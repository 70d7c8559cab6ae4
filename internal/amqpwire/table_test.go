package amqpwire

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genTable.Draw(t, "table")
		wire, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		have, err := ParseTable(wire)
		if err != nil {
			t.Fatal(err)
		}
		if !equal(want, have) {
			t.Fatalf("want %v\nhave %v", want, have)
		}
		again, err := have.Append(nil)
		if err != nil || !bytes.Equal(wire, again) {
			t.Fatalf("%v\nwant %x\nhave %x", err, wire, again)
		}
	})
}

func TestTablePreservesOrderAndDuplicates(t *testing.T) {
	want := Table{{"b", int32(1)}, {"a", int32(2)}, {"b", int32(3)}, {"", nil}}
	wire, err := want.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	have, err := ParseTable(wire)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, want, have)
}

// If RabbitMQ and the specification differ, a table follows RabbitMQ.
func TestTableMatchesRabbitMQ(t *testing.T) {
	have, err := ParseTable([]byte("\x00\x00\x00\x0f" + "\x01aL\xff\xff\xff\xff\xff\xff\xff\xff" + "\x01bt\x02"))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, Table{{"a", int64(-1)}, {"b", true}}, have)
	wire, err := have.Append(nil)
	if want := "\x00\x00\x00\x0f" + "\x01al\xff\xff\xff\xff\xff\xff\xff\xff" + "\x01bt\x01"; err != nil || string(wire) != want {
		t.Errorf("encoding: got %q, %v; want %q", wire, err, want)
	}
}

func TestTablePreservesNaNBits(t *testing.T) {
	wire := []byte("\x00\x00\x00\x0a" + "\x00d\x7f\xf4\x00\x00\x00\x00\x00\x01")
	have, err := ParseTable(wire)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := have[0].Value.(float64); !ok || !math.IsNaN(v) {
		t.Errorf("value: got %v, want NaN", have[0].Value)
	}
	again, err := have.Append(nil)
	if err != nil || !bytes.Equal(wire, again) {
		t.Errorf("encoding: got %x, %v; want %x", again, err, wire)
	}
}

func TestParseTableErrors(t *testing.T) {
	for name, wire := range map[string]string{
		"nothing":           "",
		"half a length":     "\x00\x00",
		"remaining bytes":   "\x00\x00\x00\x00\x00",
		"name too long":     "\x00\x00\x00\x02\x02a",
		"no type":           "\x00\x00\x00\x02\x01a",
		"unknown type":      "\x00\x00\x00\x03\x01aZ",
		"no value":          "\x00\x00\x00\x03\x01aI",
		"inner beyond all":  "\x00\x00\x00\x07\x01aF\x00\x00\x00\x01",
		"inner beyond own":  "\x00\x00\x00\x0a\x01aF\x00\x00\x00\x09\x01bV",
		"value beyond item": "\x00\x00\x00\x09\x01aA\x00\x00\x00\x02I\x00\x00\x00\x00",
	} {
		if table, err := ParseTable([]byte(wire)); table != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, %v; want ErrMalformed", name, table, err)
		}
	}
}

// nest returns the encoding of depth nested tables, or of nested arrays in a table.
func nest(depth int, kind byte) []byte {
	var b []byte
	for range depth - 1 {
		size := len(b)
		b = append([]byte{kind, 0, 0, byte(size >> 8), byte(size)}, b...)
		if kind == 'F' {
			b = append([]byte{0}, b...)
		}
	}
	if kind != 'F' {
		b = append([]byte{0}, b...)
	}
	return append([]byte{0, 0, byte(len(b) >> 8), byte(len(b))}, b...)
}

func TestDepth(t *testing.T) {
	for _, kind := range []byte{'F', 'A'} {
		table, err := ParseTable(nest(MaxDepth, kind))
		if err != nil {
			t.Fatalf("%c at depth %d: %v", kind, MaxDepth, err)
		}
		if b, err := table.Append(nil); err != nil || !bytes.Equal(b, nest(MaxDepth, kind)) {
			t.Errorf("%c at depth %d: got %x, %v; want the original encoding", kind, MaxDepth, b, err)
		}
		if _, err := ParseTable(nest(MaxDepth+1, kind)); !errors.Is(err, ErrMalformed) || !errors.Is(err, errTooDeep) {
			t.Errorf("parse of %c at depth %d: got error %v, want errTooDeep", kind, MaxDepth+1, err)
		}
		if _, err := (Table{{"t", table}}).Append(nil); !errors.Is(err, errTooDeep) {
			t.Errorf("append of %c at depth %d: got error %v, want errTooDeep", kind, MaxDepth+1, err)
		}
	}
}

func TestAppendRejectsCycle(t *testing.T) {
	a := make(Array, 2)
	a[0], a[1] = a, a
	if _, err := (Table{{"a", a}}).Append(nil); !errors.Is(err, errTooDeep) {
		t.Errorf("array: got error %v, want errTooDeep", err)
	}
	table := make(Table, 2)
	table[0].Value, table[1].Value = table, table
	if _, err := table.Append(nil); !errors.Is(err, errTooDeep) {
		t.Errorf("table: got error %v, want errTooDeep", err)
	}
}

func TestTableEdits(t *testing.T) {
	original := Table{{"a", int32(1)}, {"b", int32(2)}, {"a", int32(3)}}
	// With spare capacity, an incorrect append changes the original.
	table := append(make(Table, 0, 8), original...)

	if v, ok := table.Get("a"); !ok || v != int32(1) {
		t.Errorf("Get: got %v, %v; want 1, true", v, ok)
	}
	if v, ok := table.Get("c"); ok || v != nil {
		t.Errorf("Get of a missing field: got %v, %v; want nil, false", v, ok)
	}
	mustEqual(t, Table{{"a", "x"}, {"b", int32(2)}, {"a", int32(3)}}, table.Set("a", "x"))
	mustEqual(t, append(slices.Clone(original), Field{"c", "x"}), table.Set("c", "x"))
	mustEqual(t, Table{{"b", int32(2)}}, table.Delete("a"))
	mustEqual(t, original, table.Delete("c"))
	mustEqual(t, Table{{"a", nil}}, Table(nil).Set("a", nil))
	mustEqual(t, Table(nil), Table(nil).Delete("a"))

	mustEqual(t, original, table)
	mustEqual(t, Field{}, table[:4][3])
}

func TestTypeName(t *testing.T) {
	names := map[string]any{
		"void": nil, "bool": true, "byte": int8(0), "unsignedbyte": uint8(0), "short": int16(0), "unsignedshort": uint16(0),
		"signedint": int32(0), "unsignedint": uint32(0), "long": int64(0), "float": float32(0), "double": float64(0),
		"decimal": Decimal{}, "longstr": "", "binary": []byte(nil), "array": Array(nil), "timestamp": Timestamp(0),
		"table": Table(nil), "uint64": uint64(0),
	}
	for want, v := range names {
		if have := TypeName(v); have != want {
			t.Errorf("%T: got %q, want %q", v, have, want)
		}
		_, err := (Table{{"n", v}}).Append(nil)
		if _, unknown := v.(uint64); unknown != (err != nil) {
			t.Errorf("%T: unexpected error: %v", v, err)
		} else if unknown && !strings.Contains(err.Error(), "uint64") {
			t.Errorf("error does not contain the type: %v", err)
		}
	}
}

func TestAppendWritesEncodedValue(t *testing.T) {
	want := Table{{"a", int32(7)}, {"b", Table{{"c", "text"}}}}
	got, err := Table{{"a", Encoded("I\x00\x00\x00\x07")}, {"b", Encoded("F\x00\x00\x00\x0b\x01cS\x00\x00\x00\x04text")}}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseTable(got)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, want, back)
}
