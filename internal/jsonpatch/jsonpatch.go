// Package jsonpatch applies a JSON Patch (RFC 6902) to the bytes of a JSON document. It replaces the bytes of the values
// that the patch changes, and preserves all other bytes: spaces, the order of names, the form of numbers, escapes, and
// duplicate names. Therefore the result is reproducible, and a comparison of the bytes shows only the changes of the patch.
//
// Other libraries decode and re-encode the document, which loses these details. The package imports only the standard
// library.
package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits of a patch.
const (
	maxOperations = 100
	maxDepth      = 100 // maximum number of parts of a path
)

// Patch is a list of operations. It is immutable.
type Patch struct{ operations []operation }

type operation struct {
	name       string
	path, from pointer
	value      []byte // bytes of the patch
}

// Errors of Apply. They concern the document.
var (
	// ErrNotJSON reports that the document is not one JSON value.
	ErrNotJSON = errors.New("body is not valid JSON")

	// ErrTooLarge reports that a result exceeds the limit of Apply.
	ErrTooLarge = errors.New("result is too large")
)

// Parse reads a patch. It ignores members that RFC 6902 does not define, and rejects a repeated member.
func Parse(text []byte) (*Patch, error) {
	text = bytes.TrimSpace(text)
	if !json.Valid(text) {
		return nil, errors.New("patch is not valid JSON")
	}
	if text[0] != '[' {
		return nil, errors.New("patch must be an array of operations")
	}
	var p Patch
	for _, e := range elements(text, 0) {
		o, err := parseOperation(text[e.start:e.end])
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", len(p.operations)+1, err)
		}
		p.operations = append(p.operations, o)
	}
	switch n := len(p.operations); {
	case n == 0:
		return nil, errors.New("patch must have an operation")
	case n > maxOperations:
		return nil, fmt.Errorf("patch must have at most %d operations: got %d", maxOperations, n)
	}
	return &p, nil
}

func parseOperation(text []byte) (o operation, err error) {
	if text[0] != '{' {
		return o, errors.New("operation must be an object")
	}
	members := map[string][]byte{}
	for _, e := range elements(text, 0) {
		name := decodeString(text[e.name:e.nameEnd])
		if members[name] != nil {
			return o, fmt.Errorf("%q is repeated", name)
		}
		members[name] = text[e.start:e.end]
	}
	texts := map[string]string{}
	for _, name := range []string{"op", "path", "from"} {
		if raw, found := members[name]; found {
			if raw[0] != '"' {
				return o, fmt.Errorf("%q must be a string", name)
			}
			texts[name] = decodeString(raw)
		}
	}
	o.name, o.value = texts["op"], members["value"]
	needs := map[string][]string{
		"add": {"path", "value"}, "replace": {"path", "value"}, "test": {"path", "value"},
		"remove": {"path"}, "move": {"path", "from"}, "copy": {"path", "from"},
	}[o.name]
	if needs == nil {
		return o, fmt.Errorf("op %.40q must be add, remove, replace, move, copy or test", o.name)
	}
	for _, name := range needs {
		if members[name] == nil {
			return o, fmt.Errorf("%s must have %q", o.name, name)
		}
	}
	if o.path, err = parsePointer(texts["path"]); err != nil {
		return o, err
	}
	if o.from, err = parsePointer(texts["from"]); err != nil {
		return o, err
	}
	if o.name == "move" && len(o.from) < len(o.path) && slices.Equal(o.from, o.path[:len(o.from)]) {
		return o, errors.New("cannot move a value into itself")
	}
	if o.name == "remove" && len(o.path) == 0 || o.name == "move" && len(o.from) == 0 && len(o.path) > 0 {
		return o, errors.New("cannot remove the whole document")
	}
	return o, nil
}

// Apply applies all operations or none, and returns the patched document. It does not modify doc. If an operation
// fails, the error identifies the operation. An operation whose result exceeds limit bytes fails with ErrTooLarge.
func (p *Patch) Apply(doc []byte, limit int) ([]byte, error) {
	if !json.Valid(doc) {
		return nil, ErrNotJSON
	}
	for i, o := range p.operations {
		var err error
		if doc, err = o.apply(doc); err == nil && len(doc) > limit {
			err = ErrTooLarge
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d, %s: %w", i+1, o.name, err)
		}
	}
	return doc, nil
}

func (o operation) apply(doc []byte) ([]byte, error) {
	switch o.name {
	case "add":
		return add(doc, o.path, o.value)
	case "replace":
		v, err := find(doc, o.path)
		if err != nil {
			return nil, err
		}
		return splice(doc, v.start, v.end, o.value), nil
	case "remove":
		return remove(doc, o.path)
	case "test":
		v, err := find(doc, o.path)
		if err == nil && !equal(doc[v.start:v.end], o.value) {
			err = fmt.Errorf("%s has a different value", o.path)
		}
		return doc, err
	}
	v, err := find(doc, o.from)
	if err != nil {
		return nil, err
	}
	value := bytes.Clone(doc[v.start:v.end])
	if o.name == "move" {
		if slices.Equal(o.from, o.path) {
			return doc, nil
		}
		if doc, err = remove(doc, o.from); err != nil {
			return nil, err
		}
	}
	return add(doc, o.path, value)
}

// add inserts a value into an array, or sets a member of an object.
func add(doc []byte, path pointer, value []byte) ([]byte, error) {
	if len(path) == 0 {
		return bytes.Clone(value), nil
	}
	last := path[len(path)-1]
	parent, err := find(doc, path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	isArray := doc[parent.start] == '['
	if !isArray && doc[parent.start] != '{' {
		return nil, fmt.Errorf("%s is not an object or an array", path[:len(path)-1])
	}
	token := last
	if isArray && last == "-" {
		token = strconv.Itoa(math.MaxInt) // no element has this index
	}
	p, err := findElement(doc, parent.start, token)
	if err == nil && isArray && !p.found && last != "-" && last != strconv.Itoa(p.n) {
		err = errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	// Put the same white space before the new element as before the last element.
	space := doc[p.last.after:p.last.begin()]
	switch {
	case p.found && isArray:
		return splice(doc, p.start, p.start, value, []byte(","), space), nil
	case p.found:
		return splice(doc, p.start, p.end, value), nil
	}
	var name []byte
	if !isArray {
		name = slices.Concat(encodeString(last), []byte(":"))
	}
	switch {
	case p.n == 0:
		return splice(doc, parent.start+1, parent.start+1, name, value), nil
	case !isArray:
		name = slices.Concat(encodeString(last), doc[p.last.nameEnd:p.last.start])
	}
	return splice(doc, p.last.end, p.last.end, []byte(","), space, name, value), nil
}

// remove removes an element and an adjacent comma.
func remove(doc []byte, path pointer) ([]byte, error) {
	p, err := find(doc, path)
	switch {
	case err != nil:
		return nil, err
	case p.next != nil:
		return splice(doc, p.begin(), p.next.begin()), nil
	case p.before != nil:
		return splice(doc, p.before.end, p.end), nil
	}
	return splice(doc, p.begin(), p.end), nil
}

// splice returns doc with the bytes from start to end replaced.
func splice(doc []byte, start, end int, with ...[]byte) []byte {
	return slices.Concat(doc[:start], slices.Concat(with...), doc[end:])
}

// pointer is a JSON Pointer (RFC 6901), decoded.
type pointer []string

func parsePointer(text string) (p pointer, err error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("path %.80q must begin with a slash", text)
	}
	for token := range strings.SplitSeq(text[1:], "/") {
		unescaped := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(unescaped, "~") {
			return nil, fmt.Errorf("path %.80q must have ~0 instead of ~, and ~1 instead of /", text)
		}
		p = append(p, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	if len(p) > maxDepth {
		return nil, fmt.Errorf("path %.80q must have at most %d parts: got %d", text, maxDepth, len(p))
	}
	return p, nil
}

// String returns the pointer in the form of RFC 6901, or "the document" if it is empty.
func (p pointer) String() string {
	if len(p) == 0 {
		return "the document"
	}
	var b strings.Builder
	for _, token := range p {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}
