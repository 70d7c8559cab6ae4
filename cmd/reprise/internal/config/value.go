package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// value is a place in the file that is being read as something. Its methods
// give that, or report why it is not.
type value struct {
	*decoder
	name string // what a message calls it: "backoff.initial"
	node ast.Node
	at   Position
}

// value follows anchors and aliases to what they stand for.
func (d *decoder) value(name string, n ast.Node) value {
	at := position(n)
	n = resolved(n, d.aliases)
	if p := position(n); p.Line > 0 {
		at = p
	}
	return value{d, name, n, at}
}

// resolved is what anchors and aliases stand for.
func resolved(n ast.Node, aliases map[*ast.AliasNode]ast.Node) ast.Node {
	for range maxDepth { // an alias may stand for itself
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

func (v value) fail(format string, args ...any) { v.decoder.fail(v.at, format, args...) }

// kind is what a value is, in words for a message.
func (v value) kind() string {
	switch v.node.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.TagNode:
		return "tagged (!)"
	}
	return "something else"
}

// wrong reports a value of another kind than wanted.
func (v value) wrong(wanted string) {
	switch k := v.kind(); k {
	case "empty":
		v.fail("%s has no value: write %s, or remove the key", v.name, wanted)
	default:
		v.fail("%s is %s: write %s", v.name, k, wanted)
	}
}

// text reads a string that is not empty.
func (v value) text(example string) (string, bool) {
	var s string
	switch n := v.node.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = strings.TrimSuffix(n.Value.Value, "\n")
	default:
		v.wrong("a text such as " + example)
		return "", false
	}
	if s == "" {
		v.fail("%s is an empty text: write one such as %s, or remove the key", v.name, example)
		return "", false
	}
	return s, true
}

// word reads any scalar as the text it was written as: in a command line and in
// headers 5 is as good as "5".
func (v value) word() (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	v.wrong(`a text ("" for an empty one)`)
	return "", false
}

// oneOf reads one of a few words.
func (v value) oneOf(words ...string) (string, bool) {
	s, ok := v.text(words[0])
	if !ok || slices.Contains(words, s) {
		return s, ok
	}
	v.fail("%s cannot be %q: write %s", v.name, s, oneOfThese(words))
	return "", false
}

// integer reads a whole number from lowest to highest.
func (v value) integer(lowest, highest int) (int, bool) {
	n, ok := v.node.(*ast.IntegerNode)
	if !ok {
		v.wrong(fmt.Sprintf("a whole number from %d to %d", lowest, highest))
		return 0, false
	}
	if i, ok := n.Value.(int64); ok && i < 0 {
		if i < int64(lowest) {
			v.fail("%s is %d: write %d or more", v.name, i, lowest)
			return 0, false
		}
		return int(i), true
	}
	var i uint64
	switch x := n.Value.(type) {
	case int64:
		i = uint64(x)
	case uint64:
		i = x
	}
	switch {
	case lowest > 0 && i < uint64(lowest):
		v.fail("%s is %d: write %d or more", v.name, i, lowest)
		return 0, false
	case i > uint64(highest):
		v.fail("%s is %s: write %d or less", v.name, n.Token.Value, highest)
		return 0, false
	}
	return int(i), true
}

// number reads a number that may have a fraction.
func (v value) number() (float64, bool) {
	switch n := v.node.(type) {
	case *ast.IntegerNode:
		switch x := n.Value.(type) {
		case int64:
			return float64(x), true
		case uint64:
			return float64(x), true
		}
	case *ast.FloatNode:
		return n.Value, true
	}
	v.wrong("a number")
	return 0, false
}

// duration reads a time of at least lowest.
func (v value) duration(lowest time.Duration) (time.Duration, bool) {
	switch n := v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		v.fail("%s has no unit: write %ss for seconds, %sm for minutes", v.name, n.GetToken().Value, n.GetToken().Value)
		return 0, false
	}
	s, ok := v.text("30s, 5m or 1h30m")
	if !ok {
		return 0, false
	}
	d, err := ParseDuration(s)
	switch {
	case err != nil:
		v.fail("%s: %v", v.name, err)
	case d < lowest && lowest <= time.Nanosecond:
		v.fail("%s is %s: write a time above zero", v.name, s)
	case d < lowest:
		v.fail("%s is %s: write %s or more", v.name, s, FormatDuration(lowest))
	default:
		return d, true
	}
	return 0, false
}

// boolean reads true or false.
func (v value) boolean() (yes, ok bool) {
	n, ok := v.node.(*ast.BoolNode)
	if !ok {
		v.wrong("true or false")
		return false, false
	}
	return n.Value, true
}

// items reads a list that is not empty.
func (v value) items(wanted string) ([]value, bool) {
	n, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.wrong(wanted)
		return nil, false
	}
	if len(n.Values) == 0 {
		v.fail("%s is an empty list: write %s", v.name, wanted)
		return nil, false
	}
	var all []value
	for i, x := range n.Values {
		item := v.value(fmt.Sprintf("%s[%d]", v.name, i), x)
		if item.at.Line == 0 {
			item.at = v.at
		}
		all = append(all, item)
	}
	return all, true
}

// none reports whether a value is the word for there being none.
func (v value) none() bool {
	s, ok := v.node.(*ast.StringNode)
	return ok && s.Value == "none"
}
