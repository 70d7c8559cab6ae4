package session

import (
	"cmp"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// permissions remembers what the user was allowed, until any permission changes.
type permissions struct {
	generation uint64
	last       permission // of those that are allowed, the one that was asked for last
	allowed    map[permission]struct{}
	size       int64 // of allowed
}

type permission struct {
	op   access.Operation
	name string
}

// rememberedPermissions bounds what a client that goes through many names makes the session remember.
const rememberedPermissions = 1000

// permissionSize is about how much memory one takes beside its name.
const permissionSize = 64

// may returns an error unless the user may do something to a queue or exchange.
func (s *Session) may(op access.Operation, kind, name string) error {
	if kind == "exchange" && name == "" {
		name = "amq.default"
	}
	p := permission{op, name}
	if g := s.config.Access.Generation(); g != s.permissions.generation || len(s.permissions.allowed) >= rememberedPermissions {
		s.forgetPermissions()
		s.permissions = permissions{generation: g, allowed: make(map[permission]struct{})}
	}
	if p == s.permissions.last && name != "" {
		return nil
	}
	if _, allowed := s.permissions.allowed[p]; allowed {
		s.permissions.last = p
		return nil
	}
	if !s.config.Access.Allowed(s.user, s.vhost.Name(), op, name) {
		return exception.New(exception.AccessRefused, "%v access to %s '%s' in vhost '%s' refused for user '%s'",
			op, kind, name, s.vhost.Name(), s.user)
	}
	s.permissions.allowed[p] = struct{}{}
	s.permissions.size += permissionSize + int64(len(name))
	s.kept.Add(permissionSize + int64(len(name)))
	return nil
}

func (s *Session) forgetPermissions() {
	s.kept.Add(-s.permissions.size)
	s.permissions = permissions{}
}

func (s *Session) mayQueue(op access.Operation, name string) error { return s.may(op, "queue", name) }

func (s *Session) mayExchange(op access.Operation, name string) error {
	return s.may(op, "exchange", name)
}

// mayLead checks what it takes to have one thing's messages go on to an exchange: to read the one and write the other.
func (s *Session) mayLead(kind, name string, args amqpwire.Table, arg string) error {
	exchange, given := args.Get(arg)
	target, ok := exchange.(string)
	if !given || !ok { // of the wrong type: it is refused for that
		return nil
	}
	return cmp.Or(s.may(access.Read, kind, name), s.mayExchange(access.Write, target))
}
