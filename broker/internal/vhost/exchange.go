package vhost

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// DeclareExchange creates an exchange, unless it exists. An existing exchange must have the same properties. A passive
// declaration only checks that the exchange exists.
func (v *VHost) DeclareExchange(d *amqpwire.ExchangeDeclare) error {
	name := Clean(d.Exchange)
	if name == "" {
		return defaultExchange()
	}
	if !d.Passive && !route.Kind(d.Type).Known() {
		return unknownType(d.Type)
	}

	v.change.Lock()
	defer v.change.Unlock()
	x := v.lookupExchange(name)
	switch {
	case x == nil && d.Passive:
		return v.noExchange(name)
	case d.Passive:
		return nil
	case x != nil:
		return v.sameExchange(x, d)
	case strings.HasPrefix(name, "amq."):
		return reserved("exchange", name)
	}
	return v.addExchange(name, 0, d)
}

// addExchange adds a new exchange or an exchange from the store. The latter may have a queue with the given ID.
func (v *VHost) addExchange(name string, id uint64, d *amqpwire.ExchangeDeclare) error {
	if _, err := v.textArgument(name, d.Arguments, alternateExchange); err != nil {
		return err
	}
	rule, err := v.exchangeRule(name, route.Kind(d.Type), d.Arguments)
	if err != nil {
		return err
	}
	size := sizeOfExchange(name, d.Type, d.Arguments)
	if err := v.reserve(size, nil, v.exchange(name)); err != nil {
		return err
	}
	x := route.Exchange[*Queue]{
		Name: name, Kind: route.Kind(d.Type), Durable: d.Durable, AutoDelete: d.AutoDelete, Internal: d.Internal,
		Arguments: d.Arguments, Rule: rule,
	}
	if x.Kind == route.Delayed {
		if id == 0 && v.registry != nil && v.store != nil {
			id = v.registry.QueueID()
		}
		if x.Waiting, err = v.waitingQueue(name, d.Durable, id); err != nil {
			v.free(size, nil)
			return err
		}
	}
	if err := v.saveExchange(name, id, d); err != nil {
		v.free(size, nil)
		return err
	}
	applied := v.policiesOfExchange(name)
	v.mu.Lock()
	defer v.mu.Unlock()
	added := v.routes.Add(x)
	v.applyToExchange(added, applied)
	if rule == route.RecentHistory {
		v.keepHistory(added)
	}
	if rule.Varies() {
		v.varying.Add(1)
	}
	return nil
}

func (v *VHost) sameExchange(x *route.Exchange[*Queue], d *amqpwire.ExchangeDeclare) error {
	of := v.exchange(x.Name)
	return cmp.Or(
		same("type", of, erlang.Atom(d.Type), erlang.Atom(string(x.Kind))),
		same("durable", of, d.Durable, x.Durable),
		same("auto_delete", of, d.AutoDelete, x.AutoDelete),
		same("internal", of, d.Internal, x.Internal),
		sameArgument(alternateExchange, of, d.Arguments, x.Arguments.(amqpwire.Table)),
	)
}

// DeleteExchange removes an exchange. It also succeeds if the exchange does not exist.
func (v *VHost) DeleteExchange(name string, ifUnused bool) error {
	name = Clean(name)
	switch {
	case name == "":
		return defaultExchange()
	case strings.HasPrefix(name, "amq."):
		return exception.New(exception.AccessRefused, "deletion of system %s not allowed", v.exchange(name))
	}
	v.change.Lock()
	defer v.change.Unlock()
	x := v.lookupExchange(name)
	if x == nil {
		return nil
	}
	if ifUnused && x.InUse() {
		return exception.New(exception.PreconditionFailed, "%s in use", v.exchange(name))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routes.Delete(x)
	return nil
}

func (v *VHost) lookupExchange(name string) *route.Exchange[*Queue] {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.routes.Exchange(name)
}

func defaultExchange() error {
	return exception.New(exception.AccessRefused, "operation not permitted on the default exchange")
}

func reserved(what, name string) error {
	return exception.New(exception.AccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", what, name)
}

func same[T comparable](arg, of string, received, current T) error {
	if received == current {
		return nil
	}
	return inequivalent(arg, of, fmt.Sprintf("'%v'", received), fmt.Sprintf("'%v'", current))
}

func inequivalent(arg, of, received, current string) error {
	return exception.New(exception.PreconditionFailed,
		"inequivalent arg '%s' for %s: received %s but current is %s", arg, of, received, current)
}

// Clean removes line breaks from a name, as RabbitMQ does.
func Clean(name string) string {
	if !strings.ContainsAny(name, "\r\n") {
		return name
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(name)
}
