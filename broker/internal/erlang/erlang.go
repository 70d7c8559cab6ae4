// Package erlang formats values in Erlang notation, as in RabbitMQ's error messages.
package erlang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Term formats a value of a field table.
func Term(v any) string {
	switch v := v.(type) {
	case nil:
		return "undefined"
	case float32:
		return float(float64(v))
	case float64:
		return float(v)
	case amqpwire.Decimal:
		return fmt.Sprintf("{%d,%d}", v.Scale, v.Value)
	case string:
		return Binary([]byte(v))
	case []byte:
		return Binary(v)
	case amqpwire.Table:
		terms := make([]string, len(v))
		for i, f := range v {
			terms[i] = fmt.Sprintf("{%s,%s,%s}", Term(f.Name), amqpwire.TypeName(f.Value), Term(f.Value))
		}
		return "[" + strings.Join(terms, ",") + "]"
	case amqpwire.Array:
		terms := make([]string, len(v))
		for i, e := range v {
			terms[i] = fmt.Sprintf("{%s,%s}", amqpwire.TypeName(e), Term(e))
		}
		return "[" + strings.Join(terms, ",") + "]"
	}
	return fmt.Sprint(v)
}

// RawJSON formats valid JSON.
func RawJSON(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	_ = d.Decode(&v)
	return JSON(v)
}

// JSON formats a value that was decoded from JSON, with integers as int64 or all numbers as [json.Number].
func JSON(v any) string {
	var terms []string
	switch v := v.(type) {
	case nil:
		return "null"
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return float(f)
		}
	case []any:
		for _, e := range v {
			terms = append(terms, JSON(e))
		}
		return "[" + strings.Join(terms, ",") + "]"
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			terms = append(terms, Term(name)+" => "+JSON(v[name]))
		}
		return "#{" + strings.Join(terms, ",") + "}"
	}
	return Term(v)
}

// float formats a number in the shorter notation, with a decimal point. From 2^53 on, the notation is scientific.
func float(f float64) string {
	fixed := withPoint(strconv.FormatFloat(f, 'f', -1, 64))
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	n, _ := strconv.Atoi(exponent)
	if scientific := fmt.Sprintf("%se%d", withPoint(mantissa), n); len(scientific) < len(fixed) || math.Abs(f) >= 1<<53 {
		return scientific
	}
	return fixed
}

func withPoint(number string) string {
	if !strings.Contains(number, ".") {
		number += ".0"
	}
	return number
}

// Binary formats bytes, as a string if all of them are printable.
func Binary(b []byte) string {
	if len(b) == 0 {
		return Octets(b)
	}
	if utf8.Valid(b) {
		if text, ok := printable([]rune(string(b))); ok {
			if len(b) > utf8.RuneCount(b) {
				return "<<" + text + "/utf8>>"
			}
			return "<<" + text + ">>"
		}
		return Octets(b)
	}
	latin1 := make([]rune, len(b))
	for i, c := range b {
		latin1[i] = rune(c)
	}
	if text, ok := printable(latin1); ok {
		return "<<" + text + ">>"
	}
	return Octets(b)
}

// Atom formats an atom, in quotes unless it is a plain word.
func Atom(name string) string {
	if plainAtom.MatchString(name) {
		return name
	}
	return "'" + name + "'"
}

var plainAtom = regexp.MustCompile(`^[a-z][0-9A-Za-z_@]*$`)

// escapes replaces the characters that Erlang writes with a backslash.
var escapes = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`, "\v", `\v`, "\b", `\b`, "\f", `\f`, "\x1b", `\e`, `"`, `\"`, `\`, `\\`)

// printable quotes a string, and reports whether Erlang considers all characters of the string printable.
func printable(text []rune) (quoted string, ok bool) {
	for _, r := range text {
		control := r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff
		if control && !strings.ContainsRune("\n\r\t\v\b\f\x1b", r) {
			return "", false
		}
	}
	return `"` + escapes.Replace(string(text)) + `"`, true
}

// Octets formats bytes as numbers. It formats at most 255 bytes, because an error message has at
// most 255 bytes.
func Octets(b []byte) string {
	numbers := make([]string, min(len(b), 255))
	for i := range numbers {
		numbers[i] = strconv.Itoa(int(b[i]))
	}
	return "<<" + strings.Join(numbers, ",") + ">>"
}
