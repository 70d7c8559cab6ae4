package vhost

import (
	"fmt"

	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// BindingInfo is a binding of a queue or an exchange to a source exchange. The source routes messages to the destination.
type BindingInfo struct {
	Source      string
	Destination string
	ToExchange  bool // the destination is an exchange instead of a queue
	Key         string
	Arguments   amqpwire.Table
}

// Bind creates a binding, unless it exists. The argument owner identifies the connection of the client.
func (v *VHost) Bind(b BindingInfo, owner any) error {
	b = b.clean()
	if err := b.bindable(); err != nil {
		return err
	}
	v.change.Lock()
	defer v.change.Unlock()
	return v.bind(b, owner)
}

// bindable returns an error for a destination that cannot have bindings.
func (b BindingInfo) bindable() error {
	switch {
	case b.ToExchange && b.Destination == "":
		return defaultExchange()
	case !b.ToExchange && isReply(b.Destination):
		return exception.New(exception.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	return nil
}

// Unbind removes a binding. It also succeeds if the binding, its source or its destination does not exist.
func (v *VHost) Unbind(b BindingInfo, owner any) error {
	b = b.clean()
	if err := b.bindable(); err != nil {
		return err
	}
	if b.Source == "" {
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
	if !v.routes.Bound(x, made) { // safe without mu, because all changes hold v.change
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

// destination returns the destination of a binding, or the zero value if it is missing.
func (v *VHost) destination(b BindingInfo) destination {
	if b.ToExchange {
		return destination{Exchange: v.lookupExchange(b.Destination)}
	}
	return destination{Queue: v.lookupQueue(b.Destination)}
}

// bind checks the source first. If both the source and the destination are missing, the error names the source.
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
	if problem := v.invalid(x.Rule, b, d); problem != "" {
		return exception.New(exception.PreconditionFailed, "%s", problem)
	}
	made, err := binding(d, b.Key, b.Arguments)
	if err != nil {
		return err
	}
	if v.routes.Bound(x, made) { // safe without mu, because all changes hold v.change
		return nil
	}
	if err := v.reserve(sizeOfBinding(x, made), d.Queue, "binding to "+v.exchange(b.Source)); err != nil {
		return err
	}
	v.mu.Lock()
	v.routes.Bind(x, made)
	v.saveBinding(x, made)
	v.mu.Unlock()
	v.sendHistory(x, d)
	return nil
}

// invalid returns an error message for a binding that the type of the exchange does not permit, or an empty string.
func (v *VHost) invalid(kind route.Kind, b BindingInfo, to destination) string {
	switch kind {
	case route.Topic:
		if n := route.Hashes(b.Key); n > maxHashes && !v.loading { // keep the bindings of earlier versions
			return fmt.Sprintf("Topic binding key '%s' uses %d '#' wildcards, at most %d are allowed", b.Key, n, maxHashes)
		}
	case route.Headers:
		match, given := b.Arguments.Get("x-match")
		if _, text := match.(string); given && !text {
			return fmt.Sprintf("Invalid x-match field type %s (value %s); expected longstr", amqpwire.TypeName(match), erlang.Term(match))
		}
		if given && !route.ValidHeadersMatch(match) {
			return fmt.Sprintf("Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", erlang.Term(match))
		}
	case route.ConsistentHash:
		switch weight, ok := route.Weight(b.Key); {
		case !ok:
			return "The binding key must be an integer: " + erlang.Term(b.Key)
		case weight < 1:
			return "The binding key must be greater than 0"
		case weight > route.MaxWeight:
			return fmt.Sprintf("The binding key must not exceed %d", route.MaxWeight)
		}
	case route.LocalRandom:
		switch {
		case b.Key != "":
			return fmt.Sprintf("Non empty binding '%s' key not permitted", b.Key)
		case to.Queue == nil:
			return "Destination not found"
		case to.Queue.Config().Quorum:
			return "Queue type rabbit_quorum_queue not valid for this exchange type"
		}
	}
	return ""
}

// maxHashes is the maximum number of "#" in a binding key, as in RabbitMQ since 4.3.5. The matcher does not require a limit.
const maxHashes = 2

type destination = route.Destination[*Queue]

func binding(d destination, key string, args amqpwire.Table) (route.Binding[*Queue], error) {
	encoded, err := args.Append(nil)
	if err != nil {
		return route.Binding[*Queue]{}, exception.New(exception.SyntaxError, "binding arguments: %v", err)
	}
	return route.Binding[*Queue]{Destination: d, Key: key, Arguments: args, Encoded: string(encoded)}, nil
}
