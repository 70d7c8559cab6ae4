package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/parameter"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (im *importer) addUser(u *importedUser) error {
	if im.users[u.Name] {
		return fmt.Errorf("user %q is defined twice", u.Name)
	}
	im.users[u.Name] = true
	user, err := u.user(u.Name)
	if err == nil {
		err = im.node.Access.SetUser(user)
	}
	return withObject("user", u.Name, err)
}

// addVHost adds or changes a virtual host. As in RabbitMQ, only the first of several definitions of it counts.
func (im *importer) addVHost(v *importedVHost) error {
	if err := v.settings().check(); err != nil {
		return withObject("vhost", v.Name, err)
	}
	if im.vhosts[v.Name] {
		return nil
	}
	im.vhosts[v.Name] = true
	added := im.node.AddVHost(v.Name)
	host := im.node.VHost(v.Name)
	if host == nil {
		return node.ErrClosed
	}
	v.settings().apply(host, host.About())
	if added && im.creator != "" {
		return withObject("vhost", v.Name, im.node.Access.SetPermission(allPermissions(im.creator, v.Name)))
	}
	return nil
}

func (im *importer) addPermission(p *access.Permission) error {
	if im.node.VHost(p.VHost) == nil {
		return noVHost(p.VHost)
	}
	return withObject("permission of user", p.User, im.node.Access.SetPermission(*p))
}

func (im *importer) addTopicPermission(p *access.TopicPermission) error {
	if im.node.VHost(p.VHost) == nil {
		return noVHost(p.VHost)
	}
	return withObject("topic permission of user", p.User, setTopicPermission(im.node, *p))
}

// host returns the virtual host for an object.
func (im *importer) host(name string) (*vhost.VHost, error) {
	if im.into != nil {
		return im.into, nil
	}
	if v := im.node.VHost(name); v != nil {
		return v, nil
	}
	return nil, noVHost(name)
}

func noVHost(name string) error {
	//lint:ignore ST1005 RabbitMQ's text
	return fmt.Errorf("Please create virtual host %q prior to importing definitions.", name)
}

// addParameter adds or replaces a parameter.
func (im *importer) addParameter(p *importedParameter) error {
	v, err := im.host(p.VHost)
	if err != nil {
		return err
	}
	if p.Component == operatorComponent {
		return addOperatorPolicy(v, p)
	}
	err = im.setParameter(parameter.Key{VHost: v.Name(), Component: p.Component, Name: p.Name}, p.Value)
	if err != nil {
		return fmt.Errorf(`%w (vhost: "%s" / component: "%s" / key: "%s")`, err, v.Name(), p.Component, p.Name)
	}
	return nil
}

func (im *importer) addGlobalParameter(p *importedParameter) error {
	if p.Value == nil { // null is a value
		return fmt.Errorf("global parameter %q: value is missing", p.Name)
	}
	return im.setParameter(parameter.Global(p.Name), p.Value)
}

func (im *importer) setParameter(k parameter.Key, value json.RawMessage) error {
	_, err := im.node.SetParameter(parameter.Parameter{Key: k, Value: value})
	if err == nil {
		warnIdle(im.log, k)
	}
	return err
}

func (im *importer) addExchange(x *importedExchange) error {
	v, err := im.host(x.VHost)
	if err != nil {
		return err
	}
	if _, exists := v.Exchange(x.Name); exists || predeclared(x.Name) {
		return nil
	}
	if x.Type == "" {
		return fmt.Errorf("exchange %q: type must not be empty", x.Name)
	}
	declaration := x.declaration(x.Name)
	declaration.Durable = x.Durable == nil || bool(*x.Durable)
	return withObject("exchange", x.Name, v.DeclareExchange(declaration))
}

// addQueue adds a queue. As in RabbitMQ, it skips queues whose names are reserved for the broker.
func (im *importer) addQueue(q *importedQueue) error {
	v, err := im.host(q.VHost)
	switch {
	case err != nil:
		return err
	case q.Name == "":
		return errors.New("queue name must not be empty")
	case v.FindQueue(q.Name) != nil:
		return nil
	case strings.HasPrefix(q.Name, "amq."):
		im.log.Warn("queue is not imported: names that start with amq. are reserved", "queue", q.Name, "vhost", v.Name())
		return nil
	}
	declaration := q.declaration(q.Name)
	declaration.Durable, declaration.AutoDelete = q.Durable.value || !q.Durable.set, q.AutoDelete.value
	_, err = v.DeclareQueue(declaration, httpOwner{}, func(string) error { return nil })
	return withObject("queue", q.Name, err)
}

// addBinding adds a binding. The default exchange needs none, because it is bound to each queue.
func (im *importer) addBinding(b *importedBinding) error {
	v, err := im.host(b.VHost)
	if err != nil {
		return err
	}
	toExchange := b.DestinationType == toExchangeType
	if !toExchange && b.DestinationType != "queue" {
		return fmt.Errorf("binding from %q to %q: destination_type must be queue or exchange: got %q", b.Source, b.Destination, b.DestinationType)
	}
	name := fmt.Sprintf("binding from %q to %s", b.Source, b.DestinationType)
	if b.Source == "" {
		_, known := v.Exchange(b.Destination)
		if !toExchange {
			known = v.FindQueue(b.Destination) != nil
		}
		if !known {
			return fmt.Errorf("%s %q: destination not found", name, b.Destination)
		}
		return nil
	}
	return withObject(name, b.Destination, v.Bind(vhost.BindingInfo{
		Source: b.Source, Destination: b.Destination, ToExchange: toExchange, Key: b.RoutingKey, Arguments: amqpwire.Table(b.Arguments),
	}, httpOwner{}))
}
