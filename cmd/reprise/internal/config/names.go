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

// reserved is what the names of the broker's own queues and exchanges begin with.
// RabbitMQ lets nobody else declare such: https://www.rabbitmq.com/docs/queues#names
const reserved = "amq."

// amqpName reads the name of a queue or an exchange, leaving room for what is
// appended to it. A number is not one: whether 010 means 8, 10 or "010" is
// nothing to guess.
func amqpName(example string, room int) reader[string] {
	return func(v value) (string, bool) {
		switch v.node.(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			return "", v.fail("%s is %s: put it in quotes: %q", v.name, v.kind(), v.written())
		}
		s, ok := v.text(example)
		return s, ok && v.fits(s, room)
	}
}

// fits reports whether AMQP can carry a name.
func (v value) fits(name string, room int) bool {
	switch {
	case len(name) > maxName-room:
		return v.fail("%s has a name of %d bytes: %d are the most", v.name, len(name), maxName-room)
	case strings.ContainsAny(name, "\x00\r\n"):
		return v.fail("%s has a name with a line break or a NUL in it: remove it", v.name)
	}
	return true
}

// ownName is amqpName for something that is declared.
func ownName(example string, room int) reader[string] {
	return func(v value) (string, bool) {
		s, ok := amqpName(example, room)(v)
		return s, ok && v.own(s)
	}
}

// own reports whether a name is none of the broker's own.
func (v value) own(name string) bool {
	if strings.HasPrefix(name, reserved) {
		return v.fail("%s begins with %s, as the broker's own names do, and no others can: write one of yours", quoted(name), reserved)
	}
	return true
}

// namesQueue reports whether the key can be the name of a work queue.
func (p field) namesQueue() bool {
	key := value{decoder: p.decoder, name: "the work queue", at: p.keyAt}
	if p.key == "" {
		return key.fail("%s has an empty name: write one of yours", key.name)
	}
	return key.fits(p.key, len(topology.FailedQueue(""))) && key.own(p.key)
}

// routingKey reads a key, which may be empty.
func (v value) routingKey() (string, bool) {
	s, ok := v.word()
	if ok && len(s) > maxName {
		return "", v.fail("%s has %d bytes: %d are the most", v.name, len(s), maxName)
	}
	return s, ok
}

// arguments reads those of a queue, as the broker has them, but for some that are
// set already.
func arguments(set ...string) reader[topology.Table] {
	return func(v value) (topology.Table, bool) {
		f, ok := v.fields(v.name)
		if !ok {
			return nil, false
		}
		args := topology.Table{}
		for _, p := range f.pairs {
			switch n := p.node.(type) {
			case *ast.IntegerNode:
				i, fits := whole(n)
				if !fits {
					p.fail("%s is %s: write %d or less", p.name, p.written(), math.MaxInt64)
				}
				args[p.key] = i
			case *ast.BoolNode:
				args[p.key] = n.Value
			case *ast.StringNode, *ast.LiteralNode:
				args[p.key], _ = p.word()
			default:
				p.wrong("a whole number, a text, or true or false, as the queue has it")
			}
			switch {
			case p.key == "" || len(p.key) > maxName:
				f.failAt(p.keyAt, "an argument needs a name of 1 to %d bytes", maxName)
			case slices.Contains(set, p.key):
				f.failAt(p.keyAt, "%s is set by the preset: remove it", p.key)
			}
		}
		return args, true
	}
}
