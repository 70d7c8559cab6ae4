package vhost

import (
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/route"
)

// BindQueue binds a queue to an exchange.
func (v *VHost) BindQueue(exchange, name, key string, args amqpwire.Table, owner any) error {
	v.change.Lock()
	defer v.change.Unlock()
	q, err := v.Queue(clean(name), owner)
	if err != nil {
		return err
	}
	return v.bind(clean(exchange), route.Destination[*Queue]{Queue: q}, key, args)
}

// UnbindQueue removes a binding. If there is no such binding, or no such queue or exchange, that is what the client wants.
func (v *VHost) UnbindQueue(exchange, name, key string, args amqpwire.Table, owner any) error {
	v.change.Lock()
	defer v.change.Unlock()
	q := v.lookupQueue(clean(name))
	return v.unbind(clean(exchange), q != nil, route.Destination[*Queue]{Queue: q}, key, args, func() error {
		_, err := v.Queue(q.Name(), owner)
		return err
	})
}

// BindExchange binds an exchange to another: what reaches the source goes on to the destination.
func (v *VHost) BindExchange(source, destination, key string, args amqpwire.Table) error {
	source, destination = clean(source), clean(destination)
	if destination == "" {
		return defaultExchange()
	}
	v.change.Lock()
	defer v.change.Unlock()
	to := v.lookupExchange(destination)
	if to == nil {
		return v.noExchange(destination)
	}
	return v.bind(source, route.Destination[*Queue]{Exchange: to}, key, args)
}

// UnbindExchange is to BindExchange what UnbindQueue is to BindQueue.
func (v *VHost) UnbindExchange(source, destination, key string, args amqpwire.Table) error {
	source, destination = clean(source), clean(destination)
	if destination == "" {
		return defaultExchange()
	}
	v.change.Lock()
	defer v.change.Unlock()
	to := v.lookupExchange(destination)
	return v.unbind(source, to != nil, route.Destination[*Queue]{Exchange: to}, key, args, func() error { return nil })
}

func (v *VHost) bind(source string, d route.Destination[*Queue], key string, args amqpwire.Table) error {
	if source == "" {
		return defaultExchange()
	}
	x := v.lookupExchange(source)
	if x == nil {
		return v.noExchange(source)
	}
	canonical, err := canonical(args)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Bind(x, d, key, canonical)
	return nil
}

// unbind removes a binding that exists, if it may.
func (v *VHost) unbind(source string, exists bool, d route.Destination[*Queue], key string, args amqpwire.Table, may func() error) error {
	if source == "" {
		return defaultExchange()
	}
	x := v.lookupExchange(source)
	if x == nil || !exists {
		return nil
	}
	canonical, err := canonical(args)
	if err != nil {
		return err
	}
	if !v.routes.Bound(x, d, key, canonical) { // reading is safe: nothing changes while change is held
		return nil
	}
	if err := may(); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Unbind(x, d, key, canonical)
	return nil
}

// canonical encodes arguments, by which bindings differ.
func canonical(args amqpwire.Table) (string, error) {
	encoded, err := args.Append(nil)
	if err != nil {
		return "", exception.New(exception.SyntaxError, "binding arguments: %v", err)
	}
	return string(encoded), nil
}
