package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Arguments of exchanges. Package route defines the arguments of exchanges of the type [route.ConsistentHash].
const (
	alternateExchange = "alternate-exchange"      // of all exchanges (https://www.rabbitmq.com/docs/ae)
	delayedType       = "x-delayed-type"          // of [route.Delayed]: the type whose rule matches the bindings
	lengthOfHistory   = "x-recent-history-length" // of [route.RecentHistory]
)

// exchangeRule checks the arguments of an exchange that depend on its type, and returns the type whose rule matches the
// bindings of the exchange.
func (v *VHost) exchangeRule(name string, kind route.Kind, args amqpwire.Table) (rule route.Kind, err error) {
	switch kind {
	case route.Delayed:
		return v.delayedRule(name, args)
	case route.ConsistentHash:
		header, err := v.textArgument(name, args, route.HashHeader)
		if err != nil {
			return "", err
		}
		property, err := v.textArgument(name, args, route.HashProperty)
		if err != nil {
			return "", err
		}
		switch {
		case header != nil && property != nil:
			return "", exception.New(exception.PreconditionFailed, "hash-header and hash-property are mutually exclusive")
		case property != nil && route.HashProperties[*property] == "":
			return "", exception.New(exception.PreconditionFailed, "Unsupported property: %s", *property)
		}
	case route.RecentHistory:
		value, found := args.Get(lengthOfHistory)
		if n, ok := integer(value); found && (!ok || n <= 0) {
			return "", exception.New(exception.PreconditionFailed,
				"Invalid argument %s, 'x-recent-history-length' must be a positive integer", erlang.Term(value))
		}
	}
	return kind, nil
}

// delayedRule returns the rule of an exchange of the type [route.Delayed].
func (v *VHost) delayedRule(name string, args amqpwire.Table) (route.Kind, error) {
	value, _ := args.Get(delayedType)
	kind, ok := value.(string)
	switch {
	case !ok:
		return "", exception.New(exception.PreconditionFailed, "Invalid argument, 'x-delayed-type' must be an existing exchange type")
	case route.Kind(kind) == route.Delayed:
		return "", exception.New(exception.PreconditionFailed,
			"Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'")
	case !route.Kind(kind).Known():
		return "", unknownType(kind)
	}
	return v.exchangeRule(name, route.Kind(kind), args)
}

func unknownType(kind string) error {
	return exception.New(exception.PreconditionFailed, "unknown exchange type '%s'", kind)
}

// textArgument returns an argument of an exchange that must be a string, or nil.
func (v *VHost) textArgument(exchange string, args amqpwire.Table, name string) (*string, error) {
	value, found := args.Get(name)
	text, ok := value.(string)
	switch {
	case !found:
		return nil, nil
	case !ok:
		return nil, exception.New(exception.PreconditionFailed,
			"invalid type '%s' for arg '%s' in %s", amqpwire.TypeName(value), name, v.exchange(exchange))
	}
	return &text, nil
}
