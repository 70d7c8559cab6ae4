package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/reprisemq/reprise/internal/brief"
)

// value is a node of the file.
type value struct {
	*decoder
	name string // name in problems: "backoff.initial"
	also string // further option in problems: ", or none"
	node ast.Node
	at   Position

	written *string  // text before the replacement of references; nil: without references
	secrets []string // contents of the references
	broken  bool     // a problem with a reference has been reported
}

// A reader reads a value as a T. If the value is not a T, the reader reports a problem at the position of the value and
// returns false, and the decoder continues with the rest of the file. Readers of lists, mappings and alternatives consist
// of other readers. The keys that the reader of a mapping reads are the schema of the mapping; see fields.
type reader[T any] func(v value) (T, bool)

// value returns the value of a node, with anchors and aliases resolved.
func (d *decoder) value(name string, n ast.Node) value {
	at := d.position(n)
	n = resolved(n, d.aliases)
	if p := d.position(n); p.Line > 0 {
		at = p
	}
	return value{decoder: d, name: name, node: n, at: at}
}

// resolved returns the target of anchors and aliases.
func resolved(n ast.Node, aliases map[*ast.AliasNode]ast.Node) ast.Node {
	for range maxDepth { // an alias may refer to itself
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			n = aliases[x]
		default:
			return n
		}
	}
	return n
}

// fail reports a problem with the value. It always returns false, so that readers can return its result.
func (v value) fail(format string, args ...any) bool {
	if v.broken {
		return false
	}
	return v.failAt(v.at, format, args...)
}

// kind describes the kind of a value for use in a problem, for example "a string".
func (v value) kind() string {
	switch v.node.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode:
		return "a number"
	case *ast.FloatNode:
		return "a floating-point number"
	case *ast.InfinityNode, *ast.NanNode:
		return "an infinity or NaN"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a mapping"
	case *ast.TagNode:
		return "a value with a tag (!)"
	}
	return "something else"
}

func (v value) isMapping() bool { return v.kind() == "a mapping" }

// notation returns a scalar in the notation of the file.
func (v value) notation() string { return v.node.GetToken().Value }

// wrong reports a value of an unexpected kind. It always returns false.
func (v value) wrong(wanted string) bool {
	if k := v.kind(); k != "empty" {
		return v.fail("%s must be %s%s: got %s", v.name, wanted, v.also, k)
	}
	return v.fail("%s must be %s%s: got no value (add one, or remove the key)", v.name, wanted, v.also)
}

// text reads a non-empty string.
func (v value) text(example string) (string, bool) {
	if v.kind() != "a string" {
		return "", v.wrong("a string such as " + example)
	}
	s := v.plain()
	if s == "" {
		return "", v.fail("%s must not be empty (write a string such as %s, or remove the key)", v.name, example)
	}
	return s, true
}

func text(example string) reader[string] {
	return func(v value) (string, bool) { return v.text(example) }
}

// plain returns v if it is a string, and otherwise "".
func (v value) plain() string {
	s, _ := textOf(v.node)
	if _, literal := v.node.(*ast.LiteralNode); literal || v.written != nil {
		s = strings.TrimSuffix(s, "\n")
	}
	return s
}

// word reads any scalar as text, in the notation of the file. In command lines and headers, 5 is equivalent to "5".
func (v value) word() (string, bool) {
	if s, ok := textOf(v.node); ok {
		return s, true
	}
	switch v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return v.notation(), true
	}
	return "", v.wrong(`a string ("" for an empty string)`)
}

// oneOf reads one of a few words.
func oneOf(words ...string) reader[string] {
	return func(v value) (string, bool) {
		s, ok := v.text(words[0])
		if !ok || slices.Contains(words, s) {
			return s, ok
		}
		if near, ok := closest(s, words); ok {
			return "", v.fail("%s cannot be %s: did you mean %s?", v.name, brief.Quoted(s), near)
		}
		return "", v.fail("%s must be %s: got %s", v.name, oneOfThese(words), brief.Quoted(s))
	}
}

// choice is a word with its meaning.
type choice[T any] struct {
	word    string
	meaning T
}

func is[T any](word string, meaning T) choice[T] { return choice[T]{word, meaning} }

// choose reads one of several words and returns its meaning.
func choose[T any](choices ...choice[T]) reader[T] {
	var words []string
	for _, c := range choices {
		words = append(words, c.word)
	}
	return func(v value) (T, bool) {
		s, ok := oneOf(words...)(v)
		i := max(0, slices.Index(words, s))
		return choices[i].meaning, ok
	}
}

// integer reads an integer from lowest to highest.
func integer[T int | int32](lowest, highest T) reader[T] {
	return func(v value) (T, bool) {
		n, ok := v.scalar().(*ast.IntegerNode)
		if !ok {
			return 0, v.wrong(fmt.Sprintf("an integer from %d to %d", lowest, highest))
		}
		i, fits := whole(n)
		switch {
		case fits && i < int64(lowest):
			return 0, v.fail("%s must be at least %d: got %d", v.name, lowest, i)
		case !fits || i > int64(highest):
			return 0, v.fail("%s must be at most %d: got %s", v.name, highest, v.notation())
		}
		return T(i), true
	}
}

// whole returns an integer, and whether it fits into an int64.
func whole(n *ast.IntegerNode) (int64, bool) {
	switch i := n.Value.(type) {
	case int64:
		return i, true
	case uint64:
		return int64(min(i, math.MaxInt64)), i <= math.MaxInt64
	}
	return 0, false
}

// number reads a number, with or without a fraction.
func number(wanted string) reader[float64] {
	return func(v value) (float64, bool) {
		switch n := v.scalar().(type) {
		case *ast.IntegerNode:
			i, _ := whole(n)
			return float64(i), true
		case *ast.FloatNode:
			return n.Value, true
		}
		return 0, v.wrong(wanted)
	}
}

// duration reads a duration of at least lowest.
func duration(lowest time.Duration) reader[time.Duration] {
	return func(v value) (time.Duration, bool) {
		switch v.node.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			return 0, v.fail("%s must have a unit: got %s (%[2]ss for seconds, %[2]sm for minutes)", v.name, v.notation())
		}
		s, ok := v.text("30s, 5m or 1h30m")
		if !ok {
			return 0, false
		}
		d, err := ParseDuration(s)
		switch {
		case err != nil:
			return 0, v.fail("%s: %v%s", v.name, err, v.also)
		case d < lowest && lowest <= time.Nanosecond:
			return 0, v.fail("%s must be positive: got %s", v.name, s)
		case d < lowest:
			return 0, v.fail("%s must be at least %s: got %s", v.name, FormatDuration(lowest), s)
		}
		return d, true
	}
}

// size reads a number of bytes.
func (v value) size() (int64, bool) {
	s, ok := v.word()
	if !ok {
		return 0, false
	}
	n, err := ParseSize(s)
	if err != nil {
		return 0, v.fail("%s: %v", v.name, err)
	}
	return n, true
}

// boolean reads true or false.
func (v value) boolean() (yes, ok bool) {
	n, ok := v.scalar().(*ast.BoolNode)
	if !ok {
		return false, v.wrong("true or false")
	}
	return n.Value, true
}

// items returns the values of a non-empty list.
func (v value) items(wanted string) []value {
	n, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.wrong(wanted)
		return nil
	}
	if len(n.Values) == 0 {
		v.fail("%s must not be an empty list (write %s)", v.name, wanted)
	}
	var all []value
	for i, x := range n.Values {
		item := v.value(fmt.Sprintf("%s[%d]", v.name, i), x).expanded()
		if item.at.Line == 0 {
			item.at = v.at
		}
		all = append(all, item)
	}
	return all
}

// list reads a non-empty list.
func list[T any](wanted string, item reader[T]) reader[[]T] {
	return func(v value) (all []T, ok bool) {
		for _, x := range v.items(wanted) {
			if y, ok := item(x); ok {
				all = append(all, y)
			}
		}
		return all, len(all) > 0
	}
}

// orNone returns a reader that also accepts the word none, for which the reader returns the parameter none.
func orNone[T any](other reader[T], none T) reader[T] {
	return func(v value) (T, bool) {
		if v.plain() == "none" {
			return none, true
		}
		v.also = ", or none"
		return other(v)
	}
}
