package jsonpatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The functions in this file require valid JSON.

// element is an element of an array or a member of an object, described by the positions of its bytes.
type element struct {
	after         int // the position after the preceding bracket or comma
	name, nameEnd int // positions of the name with its quotes; both 0 in an array
	start, end    int // positions of the value
}

// begin returns the start of the name, or in an array the start of the value.
func (e element) begin() int { return cmp.Or(e.name, e.start) }

// elements yields the elements of the array or object at start, with their indexes. For other values, it yields
// nothing.
func elements(doc []byte, start int) iter.Seq2[int, element] {
	return func(yield func(int, element) bool) {
		open := doc[start]
		if open != '{' && open != '[' {
			return
		}
		at := start
		for i := 0; ; i++ {
			e := element{after: at + 1}
			at = skipSpace(doc, e.after)
			if doc[at] == '}' || doc[at] == ']' {
				return
			}
			if open == '{' {
				e.name, e.nameEnd = at, skipString(doc, at)
				at = skipSpace(doc, e.nameEnd)
				at = skipSpace(doc, at+1) // the colon
			}
			e.start, e.end = at, skipValue(doc, at)
			if !yield(i, e) {
				return
			}
			if at = skipSpace(doc, e.end); doc[at] != ',' {
				return
			}
		}
	}
}

func skipSpace(doc []byte, at int) int {
	for at < len(doc) && strings.IndexByte(" \t\r\n", doc[at]) >= 0 {
		at++
	}
	return at
}

func skipString(doc []byte, at int) int {
	for at++; doc[at] != '"'; at++ {
		if doc[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func skipValue(doc []byte, at int) int {
	depth := 0
	for {
		switch doc[at] {
		case '"':
			at = skipString(doc, at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ' ', '\t', '\r', '\n', ',', ':': // occurs only inside arrays and objects
			at++
			continue
		default: // a number, true, false or null
			for at < len(doc) && strings.IndexByte(" \t\r\n,:]}", doc[at]) < 0 {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
}

// place is an element of an array or object, with its neighbors.
type place struct {
	element
	found        bool
	n            int      // number of all elements
	before, next *element // neighbors, or nil
	last         element
}

var (
	errMissing   = errors.New("is missing")
	errDuplicate = errors.New("has a duplicate name")
)

// findElement returns the element of the array or object at start whose index or name is token.
func findElement(doc []byte, start int, token string) (p place, err error) {
	at := -1
	if doc[start] == '[' {
		at, err = strconv.Atoi(token)
		if err != nil || at < 0 || token != strconv.Itoa(at) {
			return p, errors.New("is not an index of an array")
		}
	}
	for i, e := range elements(doc, start) {
		switch {
		case i == at || at < 0 && isName(doc[e.name:e.nameEnd], token):
			if p.found {
				return p, errDuplicate
			}
			p.found, p.element = true, e
			if i > 0 {
				before := p.last
				p.before = &before
			}
		case p.found && p.next == nil:
			p.next = &e
		}
		p.last = e
		p.n++
	}
	return p, nil
}

func isName(raw []byte, name string) bool { return utf8.Valid(raw) && decodeString(raw) == name }

// find returns the place of the value at a path.
func find(doc []byte, path pointer) (p place, err error) {
	p.start = skipSpace(doc, 0)
	p.end = skipValue(doc, p.start)
	for i, token := range path {
		switch doc[p.start] {
		case '{', '[':
			p, err = findElement(doc, p.start, token)
		default:
			p.found = false
		}
		if err == nil && !p.found {
			err = errMissing
		}
		if err != nil {
			return p, fmt.Errorf("%s %w", path[:i+1], err)
		}
	}
	return p, nil
}

func decodeString(raw []byte) (s string) {
	_ = json.Unmarshal(raw, &s) // cannot fail, because raw is valid
	return s
}

func encodeString(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // cannot fail for a string
	return bytes.TrimSpace(b.Bytes())
}

// equal compares two values as the operation test does. It compares numbers by their value, and ignores the order of names
// in objects. An object with a duplicate name does not equal any value.
func equal(a, b []byte) bool {
	switch {
	case a[0] == '"':
		return b[0] == '"' && decodeString(a) == decodeString(b)
	case a[0] == '[' || a[0] == '{':
		if a[0] != b[0] {
			return false
		}
	case strings.IndexByte("-0123456789", a[0]) >= 0:
		return strings.IndexByte("-0123456789", b[0]) >= 0 && decimalOf(string(a)) == decimalOf(string(b))
	default:
		return bytes.Equal(a, b)
	}
	left, right := values(a), values(b)
	if left == nil || right == nil || len(left) != len(right) {
		return false
	}
	for name, v := range left {
		other, found := right[name]
		if !found || !equal(v, other) {
			return false
		}
	}
	return true
}

// values returns the values of an array or object by index or name, or nil if a name occurs twice.
func values(doc []byte) map[string][]byte {
	all := map[string][]byte{}
	for i, e := range elements(doc, 0) {
		name := strconv.Itoa(i)
		if doc[0] == '{' {
			name = decodeString(doc[e.name:e.nameEnd])
		}
		if all[name] != nil {
			return nil
		}
		all[name] = doc[e.start:e.end]
	}
	return all
}

// decimal is a number: digits without leading and trailing zeros, times ten to the power of exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int64
	text     string // set instead of the other fields if the exponent is out of range
}

func decimalOf(text string) decimal {
	number, power, _ := strings.Cut(strings.ToLower(text), "e")
	var d decimal
	d.negative = strings.HasPrefix(number, "-")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(number, "-"), ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return decimal{}
	}
	if power != "" {
		n, err := strconv.ParseInt(power, 10, 32)
		if err != nil {
			return decimal{text: text}
		}
		d.exponent = n
	}
	d.exponent += int64(len(digits) - len(d.digits) - len(fraction))
	return d
}
