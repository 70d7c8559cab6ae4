package main

import "strings"

// encoderCall and skipCall name the methods of the encoder and the decoder
// where they differ from the type. A reserved string may hold any bytes, and is
// skipped without making a string of it.
var (
	encoderCall = map[string]string{
		"octet":    "octet",
		"short":    "short",
		"long":     "long",
		"longlong": "longlong",
		"shortstr": "shortstr",
		"rawstr":   "shortstr",
		"longstr":  "longstr",
		"table":    "table",
	}
	skipCall = map[string]string{
		"octet":    "octet",
		"short":    "short",
		"long":     "long",
		"longlong": "longlong",
		"shortstr": "shortblock",
		"rawstr":   "shortblock",
		"longstr":  "block",
		"table":    "block",
	}
)

// maxBits is how many consecutive bits share an octet.
const maxBits = 8

// groups splits fields into single ones and runs of bits that share an octet.
func groups(fields []field) [][]field {
	var out [][]field
	for _, f := range fields {
		if last := len(out) - 1; f.typ == "bit" && last >= 0 && out[last][0].typ == "bit" && len(out[last]) < maxBits {
			out[last] = append(out[last], f)
			continue
		}
		out = append(out, []field{f})
	}
	return out
}

func hasNamed(fields []field) bool {
	for _, f := range fields {
		if f.name != "" {
			return true
		}
	}
	return false
}

func (m method) goName() string { return camel(m.className) + camel(m.methodName) }
func (m method) id() string     { return "ID" + m.goName() }

// receiver leaves out the name where there is no field to use it for.
func (m method) receiver() string {
	if hasNamed(m.fields) {
		return "m *" + m.goName()
	}
	return "*" + m.goName()
}

// camel turns the specification's class-id into Go's ClassID.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		if word == "id" {
			b.WriteString("ID")
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
