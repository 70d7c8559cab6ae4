package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestOutputIsUpToDate(t *testing.T) {
	def, err := os.ReadFile("../" + input)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../" + output)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(def)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s does not match %s: run go generate ./internal/amqpwire", output, input)
	}
}

func TestDefinitionErrors(t *testing.T) {
	for name, tc := range map[string]struct{ def, want string }{
		"field outside a method": {"exchange shortstr", "outside a method"},
		"unknown type":           {"class 1 c\nmethod 1 m\n: does.\nf string", `line 4: unknown type "string"`},
		"field without type":     {"class 1 c\nmethod 1 m\n: does.\nf", "want FIELD TYPE"},
		"heading without name":   {"class 1", "want class NUMBER NAME"},
		"number out of range":    {"class 65536 c", "out of range"},
		"no class":               {"method 1 m\n: does.", "no class"},
		"no documentation":       {"class 1 c\nmethod 1 m", "no documentation"},
		"number used twice":      {"class 1 c\nmethod 1 m\n: does.\nmethod 1 n\n: does.", "1.1 is taken"},
		"field named twice":      {"class 1 c\nmethod 1 m\n: does.\nf bit\nf bit", "two fields f"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := generate([]byte(tc.def))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// The methods of AMQP need neither more bits than an octet holds nor reserved
// bits between others, but the format has them.
func TestBitsShareOctets(t *testing.T) {
	fields := make([]field, 0, 12)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		fields = append(fields, field{name: name, typ: "bit"})
	}
	fields = append(fields, field{name: "n", typ: "octet"}, field{typ: "bit"}, field{name: "j", typ: "bit"})
	var sizes []int
	for _, g := range groups(fields) {
		sizes = append(sizes, len(g))
	}
	if want := []int{8, 1, 1, 2}; len(sizes) != 4 || [4]int(sizes) != [4]int(want) {
		t.Errorf("groups of %v fields, want %v", sizes, want)
	}
	if have, want := bitSum(fields[10:]), "bit(m.J, 1)"; have != want {
		t.Errorf("sum %q, want %q", have, want)
	}
}
