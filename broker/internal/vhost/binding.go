package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// BindQueue binds a queue to an exchange.
func (v *VHost) BindQueue(exchange, name, key string, args amqpwire.Table, owner any) error {
	if isReply(name) {
		return exception.New(exception.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	v.change.Lock()
	defer v.change.Unlock()
	return v.bind(Clean(exchange), key, args, func() (destination, error) {
		q, err := v.Queue(Clean(name), owner)
		return destination{Queue: q}, err
	})
}

// UnbindQueue removes a binding. If there is no such binding, or no such queue or exchange, that is what the client wants.
func (v *VHost) UnbindQueue(exchange, name, key string, args amqpwire.Table, owner any) error {
	v.change.Lock()
	defer v.change.Unlock()
	q := v.lookupQueue(Clean(name))
	return v.unbind(Clean(exchange), q != nil, destination{Queue: q}, key, args, func() error {
		_, err := v.Queue(q.Name(), owner)
		return err
	})
}

// BindExchange binds an exchange to another: what reaches the source goes on to the target.
func (v *VHost) BindExchange(source, target, key string, args amqpwire.Table) error {
	source, target = Clean(source), Clean(target)
	if target == "" {
		return defaultExchange()
	}
	v.change.Lock()
	defer v.change.Unlock()
	return v.bind(source, key, args, func() (destination, error) { return v.toExchange(target) })
}

func (v *VHost) toExchange(name string) (destination, error) {
	to := v.lookupExchange(name)
	if to == nil {
		return destination{}, v.noExchange(name)
	}
	return destination{Exchange: to}, nil
}

// UnbindExchange is to BindExchange what UnbindQueue is to BindQueue.
func (v *VHost) UnbindExchange(source, target, key string, args amqpwire.Table) error {
	source, target = Clean(source), Clean(target)
	if target == "" {
		return defaultExchange()
	}
	v.change.Lock()
	defer v.change.Unlock()
	to := v.lookupExchange(target)
	return v.unbind(source, to != nil, destination{Exchange: to}, key, args, func() error { return nil })
}

// bind looks at the source first: when both ends are missing, that is the one to be told of.
func (v *VHost) bind(source, key string, args amqpwire.Table, find func() (destination, error)) error {
	if source == "" {
		return defaultExchange()
	}
	x := v.lookupExchange(source)
	if x == nil {
		return v.noExchange(source)
	}
	d, err := find()
	if err != nil {
		return err
	}
	if match, given := args.Get("x-match"); given && x.Kind == route.Headers && !route.ValidHeadersMatch(match) {
		return exception.New(exception.PreconditionFailed,
			"Invalid x-match field value <<\"%v\">>; expected all, any, all-with-x, or any-with-x", match)
	}
	b, err := binding(d, key, args)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.routes.Bind(x, b) {
		v.keepBinding(x, b)
	}
	return nil
}

// unbind removes a binding that exists, if it may.
func (v *VHost) unbind(source string, exists bool, d destination, key string, args amqpwire.Table, may func() error) error {
	if source == "" {
		return defaultExchange()
	}
	x := v.lookupExchange(source)
	if x == nil || !exists {
		return nil
	}
	b, err := binding(d, key, args)
	if err != nil {
		return err
	}
	if !v.routes.Bound(x, b) { // reading is safe: nothing changes while change is held
		return nil
	}
	if err := may(); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Unbind(x, b)
	return nil
}

type destination = route.Destination[*Queue]

func binding(d destination, key string, args amqpwire.Table) (route.Binding[*Queue], error) {
	encoded, err := args.Append(nil)
	if err != nil {
		return route.Binding[*Queue]{}, exception.New(exception.SyntaxError, "binding arguments: %v", err)
	}
	return route.Binding[*Queue]{Destination: d, Key: key, Arguments: args, Encoded: string(encoded)}, nil
}
