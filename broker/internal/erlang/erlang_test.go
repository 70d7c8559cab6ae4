package erlang

import (
	"math"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The expected texts are from io_lib:format("~tp", [X]) on a node of RabbitMQ 4.3.

func TestFloats(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1.5: "-1.5", 0.1: "0.1", 0.001: "0.001", 0.0001: "0.0001", 0.00001: "1.0e-5", 0.001234: "0.001234",
		1.2345e-7: "1.2345e-7", 1e5: "1.0e5", 1234567: "1234567.0", 123456789: "123456789.0", 1e10: "1.0e10", 1e15: "1.0e15", 1e16: "1.0e16",
		9007199254740991: "9007199254740991.0", 9007199254740992: "9.007199254740992e15", 12345678901234567890: "1.2345678901234567e19",
		1e21: "1.0e21", 1e23: "1.0e23", 1e100: "1.0e100", 1.5e300: "1.5e300", math.MaxFloat32: "3.4028234663852886e38",
	} {
		if got := Term(value); got != want {
			t.Errorf("%g: got %s, want %s", value, got, want)
		}
	}
	if got := Term(math.Copysign(0, -1)); got != "-0.0" {
		t.Errorf("negative zero: got %s, want -0.0", got)
	}
	if got := Term(float32(0.5)); got != "0.5" {
		t.Errorf("float32: got %s, want 0.5", got)
	}
}

func TestBinaries(t *testing.T) {
	for value, want := range map[string]string{
		"": "<<>>", "abc": `<<"abc">>`, "a b": `<<"a b">>`, "'": `<<"'">>`, `"`: `<<"\"">>`, `\`: `<<"\\">>`,
		"\t": `<<"\t">>`, "\n": `<<"\n">>`, "\b": `<<"\b">>`, "\v": `<<"\v">>`, "\f": `<<"\f">>`, "\r": `<<"\r">>`, "\x1b": `<<"\e">>`,
		"\x00": "<<0>>", "\a": "<<7>>", "\x7f": "<<127>>", "\x80": "<<128>>", "\x9f": "<<159>>", "ä\x00": "<<195,164,0>>", "\u0085": "<<194,133>>",
		"\xa0": "<<\"\u00a0\">>", "\xff": `<<"ÿ">>`, "a\xff": `<<"aÿ">>`, "\xc3": `<<"Ã">>`, // Latin-1, because it is not UTF-8
		"ä": `<<"ä"/utf8>>`, "€": `<<"€"/utf8>>`, "😀": `<<"😀"/utf8>>`, "\ufeff": "<<\"\ufeff\"/utf8>>", "\u2028": "<<\"\u2028\"/utf8>>",
		"\ue000": "<<\"\ue000\"/utf8>>", "\uffff": "<<239,191,191>>",
	} {
		if got := Term(value); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
		if got := Binary([]byte(value)); got != want {
			t.Errorf("bytes %q: got %s, want %s", value, got, want)
		}
	}
}

func TestOctets(t *testing.T) {
	for value, want := range map[string]string{"": "<<>>", "a": "<<97>>", "a\x00\xff": "<<97,0,255>>"} {
		if got := Octets([]byte(value)); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
	if got := Octets(make([]byte, 1000)); strings.Count(got, ",") != 254 {
		t.Errorf("1000 bytes: got %d numbers, want 255", strings.Count(got, ",")+1)
	}
}

// Atoms are names of exchange types.
func TestAtoms(t *testing.T) {
	for value, want := range map[string]string{
		"fanout": "fanout", "x_local@node9": "x_local@node9", "x-random": "'x-random'", "Abc": "'Abc'", "1a": "'1a'", "a.b": "'a.b'", "_a": "'_a'", "": "''",
	} {
		if got := Atom(value); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

// Nested values have the types of RabbitMQ's field tables.
func TestNestedValues(t *testing.T) {
	for want, value := range map[string]any{
		"undefined":                  nil,
		"true":                       true,
		"-7":                         int32(-7),
		"{2,314}":                    amqpwire.Decimal{Scale: 2, Value: 314},
		"[]":                         amqpwire.Array{},
		`[{longstr,<<"a">>}]`:        amqpwire.Array{"a"},
		`[{<<"n">>,signedint,1}]`:    amqpwire.Table{{Name: "n", Value: int32(1)}},
		`[{<<"t">>,table,[]}]`:       amqpwire.Table{{Name: "t", Value: amqpwire.Table{}}},
		`[{array,[{double,1.0e5}]}]`: amqpwire.Array{amqpwire.Array{float64(1e5)}},
	} {
		if got := Term(value); got != want {
			t.Errorf("%#v: got %s, want %s", value, got, want)
		}
	}
}
