package config

import (
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// maxName is the maximum length of an AMQP name in bytes.
const maxName = 255

// reserved is the prefix of the broker's internal queues and exchanges. RabbitMQ refuses declarations with this prefix:
// https://www.rabbitmq.com/docs/queues#names
const reserved = "amq."

// amqpName reads the name of a queue or an exchange. The name must be at most maxName-room bytes long, so that a
// suffix fits. An unquoted number or boolean is refused, because 010, for example, could mean 8, 10 or "010".
func amqpName(example string, room int) reader[string] {
	return func(v value) (string, bool) {
		switch v.node.(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			return "", v.fail("%s must be a string: got %s (put it in quotes: %q)", v.name, v.kind(), v.notation())
		}
		s, ok := v.text(example)
		return s, ok && v.fits(s, room)
	}
}

// fits reports whether a name is valid in AMQP and at most maxName-room bytes long.
func (v value) fits(name string, room int) bool {
	switch {
	case len(name) > maxName-room:
		return v.fail("%s must have at most %d bytes: got %d", v.name, maxName-room, len(name))
	case strings.ContainsAny(name, "\x00\r\n"):
		return v.fail("%s must not contain a line break or NUL: remove it", v.name)
	}
	return true
}

// ownName is like amqpName, for an object that the worker declares.
func ownName(example string, room int) reader[string] {
	return func(v value) (string, bool) {
		s, ok := amqpName(example, room)(v)
		return s, ok && v.own(s)
	}
}

// own reports whether a name is free of the reserved prefix. If not, it also reports a problem.
func (v value) own(name string) bool {
	if strings.HasPrefix(name, reserved) {
		return v.fail("%s must not start with %s, which is reserved for the broker; use another name", brief.Quoted(name), reserved)
	}
	return true
}

// namesQueue reports whether the key can be the name of a work queue.
func (p field) namesQueue() bool {
	key := value{decoder: p.decoder, name: "the work queue", at: p.keyAt}
	if p.key == "" {
		return key.fail("%s has an empty name; add a name", key.name)
	}
	return key.fits(p.key, len(topology.FailedQueue(""))) && key.own(p.key)
}

// routingKey reads a routing key, which may be empty.
func (v value) routingKey() (string, bool) {
	s, ok := v.word()
	if ok && len(s) > maxName {
		return "", v.fail("%s must have at most %d bytes: got %d", v.name, maxName, len(s))
	}
	return s, ok
}

// arguments reads queue arguments by their AMQP names. The parameter set lists arguments that the preset sets; the
// reader refuses them.
func arguments(set ...string) reader[topology.Table] {
	return func(v value) (topology.Table, bool) {
		f, ok := v.fields(v.name)
		if !ok {
			return nil, false
		}
		args := topology.Table{}
		for _, p := range f.pairs {
			p.value = p.expanded()
			switch n := p.scalar().(type) {
			case *ast.IntegerNode:
				i, fits := whole(n)
				if !fits {
					p.fail("%s must be at most %d: got %s", p.name, math.MaxInt64, p.notation())
				}
				args[p.key] = i
			case *ast.BoolNode:
				args[p.key] = n.Value
			case *ast.StringNode, *ast.LiteralNode:
				args[p.key], _ = p.word()
			default:
				p.wrong("an integer, a string, true or false")
			}
			switch {
			case p.key == "" || len(p.key) > maxName:
				f.failAt(p.keyAt, "argument name must have 1 to %d bytes", maxName)
			case slices.Contains(set, p.key):
				f.failAt(p.keyAt, "%s is set by the preset: remove it", p.key)
			}
		}
		return args, true
	}
}
