package management

import (
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (d *importedDefinitions) addUsers(n *node.Node) error {
	return d.Users.each("users", func(u *importedUser) error {
		user, err := u.user(u.Name)
		if err == nil {
			err = n.Access.SetUser(user)
		}
		if err != nil {
			return withObject("user", u.Name, err)
		}
		return nil
	})
}

// settings returns the metadata. In exports from RabbitMQ before 3.8, the metadata fields are on the same level as the
// name.
func (v *importedVHost) settings() *vhostSettings {
	if v.Metadata != nil {
		return v.Metadata
	}
	return &v.vhostSettings
}

func (d *importedDefinitions) addVHosts(n *node.Node) error {
	return d.VHosts.each("vhosts", func(v *importedVHost) error {
		n.AddVHost(v.Name)
		host := n.VHost(v.Name)
		if host == nil {
			return node.ErrClosed
		}
		v.settings().apply(host)
		return nil
	})
}

func (d *importedDefinitions) addPermissions(n *node.Node) error {
	return d.Permissions.each("permissions", func(p *access.Permission) error {
		if err := n.Access.SetPermission(*p); err != nil {
			return withObject("permission of user", p.User, err)
		}
		return nil
	})
}

func (d *importedDefinitions) addExchanges(n *node.Node, into *vhost.VHost) error {
	return d.Exchanges.each("exchanges", func(x *importedExchange) error {
		v := target(n, into, x.VHost)
		if _, exists := v.Exchange(x.Name); exists || predeclared(x.Name) {
			return nil
		}
		declaration := x.declaration(x.Name)
		declaration.Durable = x.Durable == nil || bool(*x.Durable)
		if err := v.DeclareExchange(declaration); err != nil {
			return withObject("exchange", x.Name, err)
		}
		return nil
	})
}

func (d *importedDefinitions) addQueues(n *node.Node, into *vhost.VHost) error {
	return d.Queues.each("queues", func(q *importedQueue) error {
		v := target(n, into, q.VHost)
		if v.FindQueue(q.Name) != nil {
			return nil
		}
		declaration := q.declaration(q.Name)
		declaration.Durable = q.Durable == nil || bool(*q.Durable)
		if _, given := declaration.Arguments.Get("x-queue-type"); !given && q.Type != "" {
			declaration.Arguments = declaration.Arguments.Set("x-queue-type", q.Type)
		}
		if _, err := v.DeclareQueue(declaration, httpOwner{}, func(string) error { return nil }); err != nil {
			return withObject("queue", q.Name, err)
		}
		return nil
	})
}

func (d *importedDefinitions) addBindings(n *node.Node, into *vhost.VHost) error {
	return d.Bindings.each("bindings", func(b *importedBinding) error {
		v := target(n, into, b.VHost)
		toExchange := b.DestinationType == toExchangeType
		if !toExchange && v.FindQueue(b.Destination) == nil {
			return nil // RabbitMQ exports the bindings of exclusive queues, but not the queues
		}
		err := v.Bind(vhost.BindingInfo{
			Source: b.Source, Destination: b.Destination, ToExchange: toExchange, Key: b.RoutingKey, Arguments: amqpwire.Table(b.Arguments),
		}, httpOwner{})
		if err != nil {
			return withObject("binding from", b.Source, err)
		}
		return nil
	})
}

// target returns the virtual host for an imported object. Import has ensured that the virtual host exists. If another
// request has deleted it since, target returns a temporary virtual host, so that the object is discarded.
func target(n *node.Node, into *vhost.VHost, name string) *vhost.VHost {
	if into != nil {
		return into
	}
	if v := n.VHost(name); v != nil {
		return v
	}
	return vhost.New(name, vhost.Config{Log: slog.New(slog.DiscardHandler)})
}
