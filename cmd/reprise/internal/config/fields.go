package config

import (
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// fields are the keys of a mapping. Reading them makes the schema: whatever key
// nobody asked for by the time of finish is unknown.
type fields struct {
	value
	owner string // what a message calls the mapping: "a worker"
	pairs []field
	asked []string

	refused []string // of those, or others: they exist, but not here
}

type field struct {
	value
	key   string
	keyAt Position
}

// fields reads a mapping.
func (v value) fields(owner string) (*fields, bool) {
	var pairs []*ast.MappingValueNode
	switch n := v.node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		v.wrong("a mapping (key: value)")
		return nil, false
	}
	f := &fields{value: v, owner: owner}
	for _, p := range pairs {
		f.add(p)
	}
	return f, true
}

// mapping reads a mapping, and reports the keys that read did not ask for.
func (v value) mapping(owner string, read func(*fields)) {
	if f, ok := v.fields(owner); ok {
		read(f)
		f.finish()
	}
}

// short reads a value, or a mapping that has the value as main and settings beside it.
func (v value) short(owner, main, example string, read func(value), settings func(*fields)) {
	if v.kind() != "a mapping" {
		read(v)
		return
	}
	v.mapping(owner, func(f *fields) {
		settings(f)
		if !f.read(main, read) {
			f.missing(owner+" has no "+main+": add "+main+": "+example, main)
		}
	})
}

func (f *fields) add(p *ast.MappingValueNode) {
	at := position(p.Key)
	switch p.Key.(type) {
	case *ast.MergeKeyNode:
		f.decoder.fail(at, "merge keys (<<) do not work here: give whole values by alias (backoff: *NAME), or repeat the keys")
		return
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
	default:
		f.decoder.fail(at, "a key of %s is no plain word", f.owner)
		return
	}
	key := p.Key.GetToken().Value
	for _, other := range f.pairs {
		if other.key == key {
			f.decoder.fail(at, "key %s is here a second time, after line %d: keep one", shownKey(key), other.keyAt.Line)
			return
		}
	}
	x := field{f.decoder.value(f.path(key), p.Value), key, at}
	if x.kind() == "empty" || x.at.Line == 0 {
		x.at = at
	}
	f.pairs = append(f.pairs, x)
}

// path is what messages call the value of a key: the keys of the file, of an item
// of a list and of a preset's queue say enough by themselves.
func (f *fields) path(key string) string {
	key = shownKey(key)
	if f.name == theFile || strings.HasSuffix(f.name, "]") || strings.HasPrefix(f.name, "queues.") {
		return key
	}
	return f.name + "." + key
}

// get returns the value of a key.
func (f *fields) get(key string) (value, bool) {
	f.asked = append(f.asked, key)
	for _, p := range f.pairs {
		if p.key == key {
			return p.value, true
		}
	}
	return value{}, false
}

// read calls read with the value of a key, and reports whether the key is there.
func (f *fields) read(key string, read func(value)) bool {
	x, ok := f.get(key)
	if ok {
		read(x)
	}
	return ok
}

func (f *fields) integerInto(key string, into *int, lowest, highest int) {
	f.read(key, func(x value) { *into, _ = x.integer(lowest, highest) })
}

func (f *fields) durationInto(key string, into *time.Duration, lowest time.Duration) {
	f.read(key, func(x value) { *into, _ = x.duration(lowest) })
}

func (f *fields) booleanInto(key string, into *bool) {
	f.read(key, func(x value) { *into, _ = x.boolean() })
}

func (f *fields) oneOfInto(key string, into *string, words ...string) {
	f.read(key, func(x value) { *into, _ = x.oneOf(words...) })
}

// keyAt returns the position of a key.
func (f *fields) keyAt(key string) Position {
	for _, p := range f.pairs {
		if p.key == key {
			return p.keyAt
		}
	}
	return f.value.at
}

// missing reports that a key is needed, unless it is there misspelt: then finish
// says what matters.
func (f *fields) missing(text string, keys ...string) {
	for _, p := range f.pairs {
		if _, ok := closest(p.key, keys); ok && !slices.Contains(f.asked, p.key) {
			return
		}
	}
	f.fail("%s", text)
}

// refuse reports keys that exist, but not here.
func (f *fields) refuse(reason string, keys ...string) {
	f.refused = append(f.refused, keys...)
	for _, key := range keys {
		if _, ok := f.get(key); ok {
			f.decoder.fail(f.keyAt(key), "%s %s", key, reason)
			f.asked = f.asked[:len(f.asked)-1]
			f.pairs = slices.DeleteFunc(f.pairs, func(p field) bool { return p.key == key })
			continue
		}
		f.asked = f.asked[:len(f.asked)-1]
	}
}

// finish reports the keys nobody asked for.
func (f *fields) finish() {
	there := slices.DeleteFunc(slices.Clone(f.asked), func(key string) bool { return slices.Contains(f.refused, key) })
	for _, p := range f.pairs {
		if slices.Contains(f.asked, p.key) {
			continue
		}
		if near, ok := closest(p.key, there); ok {
			f.decoder.fail(p.keyAt, "unknown key %s in %s: did you mean %s?", quoted(shownKey(p.key)), f.owner, near)
		} else {
			f.decoder.fail(p.keyAt, "unknown key %s in %s: there are %s", quoted(shownKey(p.key)), f.owner, these(there))
		}
	}
}
