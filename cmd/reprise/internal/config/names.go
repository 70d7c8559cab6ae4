package config

import (
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/reprisemq/reprise/topology"
)

// maxName is the longest name AMQP can carry.
const maxName = 255

// amqpName reads the name of a queue or an exchange, leaving room for what is
// appended to it. A number is not one: whether 010 means 8, 10 or "010" is
// nothing to guess.
func (v value) amqpName(example string, room int) (string, bool) {
	switch n := v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		v.fail("%s is %s: put it in quotes: %q", v.name, v.kind(), n.GetToken().Value)
		return "", false
	}
	s, ok := v.text(example)
	switch {
	case !ok:
	case len(s) > maxName-room:
		v.fail("%s is a name of %d bytes: %d are the most", v.name, len(s), maxName-room)
	case strings.ContainsAny(s, "\x00\r\n"):
		v.fail("%s is a name with a line break or a NUL in it: remove it", v.name)
	default:
		return s, true
	}
	return "", false
}

// reserved is what the names of the broker's own queues and exchanges begin with.
// RabbitMQ lets nobody else declare such: https://www.rabbitmq.com/docs/queues#names
const reserved = "amq."

// ownName is amqpName for something that is declared.
func (v value) ownName(example string, room int) (string, bool) {
	s, ok := v.amqpName(example, room)
	return s, ok && v.own(v.at, s)
}

// own reports a name that is the broker's, at a place.
func (v value) own(at Position, name string) bool {
	if strings.HasPrefix(name, reserved) {
		v.decoder.fail(at, "%s begins with %s, as the broker's own names do, and no others can: write one of yours", quoted(name), reserved)
		return false
	}
	return true
}

// ownQueue reports whether the key of a mapping can be the name of a work queue.
func (p field) ownQueue(name string) bool {
	most := maxName - len(topology.FailedQueue(""))
	switch {
	case name == "":
		p.decoder.fail(p.keyAt, "the work queue has an empty name: write one of yours")
	case len(name) > most:
		p.decoder.fail(p.keyAt, "the work queue has a name of %d bytes: %d are the most", len(name), most)
	case strings.ContainsAny(name, "\x00\r\n"):
		p.decoder.fail(p.keyAt, "the work queue has a name with a line break or a NUL in it: remove it")
	default:
		return p.own(p.keyAt, name)
	}
	return false
}

// routingKey reads a key, which may be empty.
func (v value) routingKey() (string, bool) {
	s, ok := v.word()
	if ok && len(s) > maxName {
		v.fail("%s has %d bytes: %d are the most", v.name, len(s), maxName)
		return "", false
	}
	return s, ok
}

// routingKeys reads a list of them.
func (v value) routingKeys() []string {
	items, _ := v.items("a list of routing keys, all that lead to the work queue: [url, tag]")
	var keys []string
	for _, item := range items {
		if key, ok := item.routingKey(); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// arguments reads those of a queue, as the broker has them, but for some that are
// set already.
func (v value) arguments(set ...string) topology.Table {
	f, ok := v.fields(v.name)
	if !ok {
		return nil
	}
	args := topology.Table{}
	for _, p := range f.pairs {
		switch n := p.node.(type) {
		case *ast.IntegerNode:
			switch i := n.Value.(type) {
			case int64:
				args[p.key] = i
			case uint64:
				if i > math.MaxInt64 {
					p.fail("%s is %d: write %d or less", p.name, i, math.MaxInt64)
				}
				args[p.key] = int64(min(i, math.MaxInt64))
			}
		case *ast.BoolNode:
			args[p.key] = n.Value
		case *ast.StringNode, *ast.LiteralNode:
			args[p.key], _ = p.word()
		default:
			p.wrong("a whole number, a text, or true or false, as the queue has it")
		}
		switch {
		case p.key == "" || len(p.key) > maxName:
			f.decoder.fail(p.keyAt, "an argument needs a name of 1 to %d bytes", maxName)
		case slices.Contains(set, p.key):
			f.decoder.fail(p.keyAt, "%s is set by the preset: remove it", p.key)
		}
	}
	return args
}
