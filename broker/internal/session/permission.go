package session

import (
	"cmp"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// permissions caches the operations that the user may perform. Any change to permissions clears the cache.
type permissions struct {
	generation uint64
	last       permission // the most recent permitted operation
	allowed    map[permission]struct{}
	size       int64 // memory of allowed
	topics     access.Topics
}

type permission struct {
	op   access.Operation
	name string
}

// maxCachedPermissions limits the cache, because a client may use many names.
const maxCachedPermissions = 1000

// permissionSize is the approximate memory of a cached permission without its name.
const permissionSize = 64

// Session.may returns an error unless the user has the permission to perform op on the queue or exchange.
func (s *Session) may(op access.Operation, kind, name string) error {
	if kind == "exchange" && name == "" {
		name = "amq.default"
	}
	p := permission{op, name}
	if g := s.config.Access.Generation(); g != s.permissions.generation || len(s.permissions.allowed) >= maxCachedPermissions {
		s.forgetPermissions()
		s.permissions = permissions{
			generation: g, allowed: make(map[permission]struct{}), topics: s.config.Access.Topics(s.user, s.vhost.Name()),
		}
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
	s.identity.Add(permissionSize + int64(len(name)))
	return nil
}

func (s *Session) forgetPermissions() {
	s.identity.Add(-s.permissions.size)
	s.permissions = permissions{}
}

func (s *Session) mayQueue(op access.Operation, name string) error { return s.may(op, "queue", name) }

func (s *Session) mayExchange(op access.Operation, name string) error {
	return s.may(op, "exchange", name)
}

// mayTopics is like [MayTopics]. It follows a check of the permission for the exchange, which updates the cache.
func (s *Session) mayTopics(op access.Operation, exchange, key string, more ...[]string) error {
	if s.permissions.topics[exchange] == nil {
		return nil
	}
	return MayTopics(s.config.Access, s.vhost, s.user, op, exchange, key, more...)
}

// MayTopics returns an error unless the topic permissions of a user permit key and more keys for an exchange. They do not apply to
// other types than topic.
func MayTopics(a *access.Control, v *vhost.VHost, user string, op access.Operation, exchange, key string, more ...[]string) error {
	permitted := a.Topics(user, v.Name())[exchange]
	if permitted == nil {
		return nil
	}
	if x, _ := v.Exchange(exchange); x.Kind != route.Topic || x.Internal && op == access.Write { // the latter is refused later
		return nil
	}
	for _, key := range slices.Concat([]string{key}, slices.Concat(more...)) {
		if !permitted.Permit(op, key) {
			return exception.New(exception.AccessRefused, "%v access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'",
				op, key, exchange, v.Name(), user)
		}
	}
	return nil
}

// mayAny returns an error unless the user has any permission for the queue or exchange. The error names the permission to
// configure.
func (s *Session) mayAny(kind, name string) error {
	err := s.may(access.Configure, kind, name)
	if err == nil || s.may(access.Write, kind, name) == nil || s.may(access.Read, kind, name) == nil {
		return nil
	}
	return err
}

// mayForward checks the permissions to forward messages from a queue or exchange to the exchange in the argument arg:
// read permission for the source, and write permission for the target.
func (s *Session) mayForward(kind, name string, args amqpwire.Table, arg string) error {
	exchange, given := args.Get(arg)
	target, ok := exchange.(string)
	if !given || !ok { // the declaration rejects an argument of the wrong type
		return nil
	}
	return cmp.Or(s.may(access.Read, kind, name), s.mayExchange(access.Write, target))
}
