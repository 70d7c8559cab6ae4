package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/reprisemq/reprise/internal/brief"
)

// fields contains the keys of a mapping. The keys that the package reads are the schema: finish reports every other
// key as unknown.
type fields struct {
	value
	owner   string // name of the mapping in problems: "a worker"
	pairs   []field
	asked   []string
	refused []string // known keys that are not permitted here
}

type field struct {
	value
	key   string
	keyAt Position
}

// fields reads a mapping.
func (v value) fields(owner string) (*fields, bool) {
	n, ok := v.node.(ast.MapNode)
	if !ok {
		return nil, v.wrong("a mapping (key: value)")
	}
	f := &fields{value: v, owner: owner}
	for pairs := n.MapRange(); pairs.Next(); {
		f.add(pairs.KeyValue())
	}
	return f, true
}

func (f *fields) add(p *ast.MappingValueNode) {
	at := f.position(p.Key)
	switch p.Key.(type) {
	case *ast.MergeKeyNode:
		f.failAt(at, "merge keys (<<) are not supported: use an alias of a whole value (backoff: *NAME), or repeat the keys")
		return
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
	default:
		f.failAt(at, "a key of %s is not a plain string", f.owner)
		return
	}
	key := p.Key.GetToken().Value
	if other, twice := f.find(key); twice {
		f.failAt(at, "key %s already exists %s: keep one", shownKey(key), other.keyAt.from(at))
		return
	}
	x := field{f.decoder.value(f.path(key), p.Value), key, at}
	if x.kind() == "empty" || x.at.Line == 0 {
		x.at = at
	}
	f.pairs = append(f.pairs, x)
}

// path returns the name of a value in problems. Top-level keys, keys of a list item and keys of a preset's queue have
// no prefix, because they are unambiguous.
func (f *fields) path(key string) string {
	key = shownKey(key)
	if f.name == theFile || strings.HasSuffix(f.name, "]") || strings.HasPrefix(f.name, "queues.") {
		return key
	}
	return f.name + "." + key
}

func (f *fields) find(key string) (field, bool) {
	i := slices.IndexFunc(f.pairs, func(p field) bool { return p.key == key })
	if i < 0 {
		return field{}, false
	}
	return f.pairs[i], true
}

// get returns the value of a key. It returns false for a missing or refused key.
func (f *fields) get(key string) (field, bool) {
	if slices.Contains(f.refused, key) {
		return field{}, false
	}
	f.asked = append(f.asked, key)
	x, ok := f.find(key)
	x.value = x.expanded()
	return x, ok
}

// fields.with passes the value of a key to the function use, if the key is present. It reports whether the key is present.
func (f *fields) with(key string, use func(value)) bool {
	x, ok := f.get(key)
	if ok {
		use(x.value)
	}
	return ok
}

// all returns the values of a key that several files have.
func (f *fields) all(key string) (values []value) {
	f.asked = append(f.asked, key)
	for _, p := range f.pairs {
		if p.key == key {
			values = append(values, p.expanded())
		}
	}
	return values
}

// read sets *into to the value of a key, unless the reader reports a problem. It reports whether the key is present.
func read[T any](f *fields, key string, into *T, as reader[T]) bool {
	return f.with(key, func(v value) {
		if x, ok := as(v); ok {
			*into = x
		}
	})
}

// failAtKey reports a problem at a key that is present. It always returns false, so that readers can return its result.
func (f *fields) failAtKey(key, format string, args ...any) bool {
	x, _ := f.find(key)
	return f.failAt(x.keyAt, format, args...)
}

func (f *fields) knows(key string) bool {
	return slices.Contains(f.asked, key) || slices.Contains(f.refused, key)
}

// missing reports that one of keys is required, unless the mapping contains a misspelling of one of them, which finish
// reports.
func (f *fields) missing(text string, keys ...string) {
	for _, p := range f.pairs {
		if _, ok := closest(p.key, keys); ok && !f.knows(p.key) {
			return
		}
	}
	f.fail("%s", text)
}

// refuse reports known keys that are not permitted here.
func (f *fields) refuse(reason string, keys ...string) {
	for _, key := range keys {
		if slices.Contains(f.refused, key) {
			continue
		}
		f.refused = append(f.refused, key)
		if x, ok := f.find(key); ok {
			f.failAt(x.keyAt, "%s %s", key, reason)
		}
	}
}

// finish reports the keys that were not read.
func (f *fields) finish() {
	for _, p := range f.pairs {
		if f.knows(p.key) {
			continue
		}
		advice := "known keys are " + these(f.asked)
		if near, ok := closest(p.key, f.asked); ok {
			advice = "did you mean " + near + "?"
		}
		f.failAt(p.keyAt, "unknown key %s in %s: %s", brief.Quoted(shownKey(p.key)), f.owner, advice)
	}
}

// mapping returns a reader of a mapping. The reader reports the keys that fill does not read.
func mapping[T any](owner string, fill func(*fields, *T)) reader[T] {
	return func(v value) (t T, ok bool) {
		f, ok := v.fields(owner)
		if ok {
			fill(f, &t)
			f.finish()
		}
		return t, ok
	}
}

// value.short passes v to the function use if v is not a mapping. If v is a mapping, it passes the value of the key
// main to use, and the mapping to the function settings.
func (v value) short(owner, main, example string, use func(value), settings func(*fields)) {
	if !v.isMapping() {
		use(v)
		return
	}
	f, _ := v.fields(owner)
	settings(f)
	if !f.with(main, use) {
		f.missing(owner+" has no "+main+": add "+main+": "+example, main)
	}
	f.finish()
}
