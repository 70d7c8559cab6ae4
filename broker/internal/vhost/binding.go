package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// BindingInfo is a binding of a queue or of an exchange to an exchange: what reaches the source goes on to the destination.
type BindingInfo struct {
	Source      string
	Destination string
	ToExchange  bool // or to a queue
	Key         string
	Arguments   amqpwire.Table
}

// Bind makes a binding, unless it is there. Owner identifies the connection.
func (v *VHost) Bind(b BindingInfo, owner any) error {
	b = b.clean()
	switch {
	case b.ToExchange && b.Destination == "":
		return defaultExchange()
	case !b.ToExchange && isReply(b.Destination):
		return exception.New(exception.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	v.change.Lock()
	defer v.change.Unlock()
	return v.bind(b, owner)
}

// Unbind removes a binding. If there is no such binding, or one of its ends is missing, that is what the client wants.
func (v *VHost) Unbind(b BindingInfo, owner any) error {
	b = b.clean()
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return defaultExchange()
	}
	v.change.Lock()
	defer v.change.Unlock()
	x, d := v.lookupExchange(b.Source), v.destination(b)
	if x == nil || d == (destination{}) {
		return nil
	}
	made, err := binding(d, b.Key, b.Arguments)
	if err != nil {
		return err
	}
	if !v.routes.Bound(x, made) { // reading is safe: nothing changes while change is held
		return nil
	}
	if !b.ToExchange {
		if _, err := v.Queue(b.Destination, owner); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Unbind(x, made)
	return nil
}

func (b BindingInfo) clean() BindingInfo {
	b.Source, b.Destination = Clean(b.Source), Clean(b.Destination)
	return b
}

// destination returns what a binding leads to; zero: it is missing.
func (v *VHost) destination(b BindingInfo) destination {
	if b.ToExchange {
		return destination{Exchange: v.lookupExchange(b.Destination)}
	}
	return destination{Queue: v.lookupQueue(b.Destination)}
}

// bind looks at the source first: when both ends are missing, that is the one to be told of.
func (v *VHost) bind(b BindingInfo, owner any) error {
	if b.Source == "" {
		return defaultExchange()
	}
	x, d := v.lookupExchange(b.Source), v.destination(b)
	switch {
	case x == nil:
		return v.noExchange(b.Source)
	case !b.ToExchange:
		if _, err := v.Queue(b.Destination, owner); err != nil {
			return err
		}
	case d.Exchange == nil:
		return v.noExchange(b.Destination)
	}
	if match, given := b.Arguments.Get("x-match"); given && x.Kind == route.Headers && !route.ValidHeadersMatch(match) {
		return exception.New(exception.PreconditionFailed,
			"Invalid x-match field value <<\"%v\">>; expected all, any, all-with-x, or any-with-x", match)
	}
	made, err := binding(d, b.Key, b.Arguments)
	if err != nil {
		return err
	}
	if v.routes.Bound(x, made) { // reading is safe: nothing changes while change is held
		return nil
	}
	if err := v.take(sizeOfBinding(x, made), d.Queue, "binding to "+v.exchange(b.Source)); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Bind(x, made)
	v.keepBinding(x, made)
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
