package vhost

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The kinds of documents in the registry, and the names of each.
const (
	hostKind     = "vhost"    // name
	exchangeKind = "exchange" // virtual host, name
	queueKind    = "queue"    // virtual host, name
	bindingKind  = "binding"  // virtual host, source, toQueue or toExchange, destination, routing key, hash of the arguments
)

const (
	toQueue    = "queue"
	toExchange = "exchange"
)

type hostDocument struct {
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

type exchangeDocument struct {
	Type       string      `json:"type"`
	AutoDelete bool        `json:"auto_delete,omitempty"`
	Internal   bool        `json:"internal,omitempty"`
	Arguments  encodedArgs `json:"arguments,omitempty"`
}

type queueDocument struct {
	ID         uint64      `json:"id"` // under which the store has its messages
	AutoDelete bool        `json:"auto_delete,omitempty"`
	Arguments  encodedArgs `json:"arguments,omitempty"`
}

type bindingDocument struct {
	Arguments encodedArgs `json:"arguments,omitempty"`
}

// encodedArgs are arguments as they are on the wire, since JSON does not know one integer from another. There are none in
// the empty one.
type encodedArgs []byte

func encodeArgs(t amqpwire.Table) (encodedArgs, error) {
	if len(t) == 0 {
		return nil, nil
	}
	encoded, err := t.Append(nil)
	if err != nil {
		return nil, exception.New(exception.SyntaxError, "arguments: %v", err)
	}
	return encoded, nil
}

func (a encodedArgs) decode() (amqpwire.Table, error) {
	if len(a) == 0 {
		return nil, nil
	}
	return amqpwire.ParseTable(a)
}

func (v *VHost) keepHost(about About) {
	v.registry.Set(hostDocument(about), hostKind, v.name)
}

func (v *VHost) keepExchange(name string, d *amqpwire.ExchangeDeclare) error {
	if !d.Durable {
		return nil
	}
	args, err := encodeArgs(d.Arguments)
	if err == nil {
		v.registry.Set(exchangeDocument{d.Type, d.AutoDelete, d.Internal, args}, exchangeKind, v.name, name)
	}
	return err
}

func (v *VHost) unkeepExchange(x *route.Exchange[*Queue]) {
	if x.Durable {
		v.registry.Delete(exchangeKind, v.name, x.Name)
	}
}

func (v *VHost) keepQueue(name string, id uint64, d *amqpwire.QueueDeclare) error {
	if !lasting(d) {
		return nil
	}
	args, err := encodeArgs(d.Arguments)
	if err == nil {
		v.registry.Set(queueDocument{id, d.AutoDelete, args}, queueKind, v.name, name)
	}
	return err
}

// lasting reports whether a queue is there again when the broker is. Exclusive ones go with their connection, durable or not.
func lasting(d *amqpwire.QueueDeclare) bool { return d.Durable && !d.Exclusive }

func (q *Queue) lasting() bool { return q.Durable && q.Owner == nil }

func (v *VHost) unkeepQueue(q *Queue) {
	if q.lasting() {
		v.registry.Delete(queueKind, v.name, q.Name())
	}
}

func (v *VHost) keepBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) {
	if !lastingBinding(x, b) {
		return
	}
	args, _ := b.Arguments.(amqpwire.Table)
	encoded, err := encodeArgs(args)
	if err != nil {
		return // it has been encoded once
	}
	v.registry.Set(bindingDocument{encoded}, bindingKind, v.bindingNames(x, b)...)
}

func (v *VHost) unkeepBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) {
	if lastingBinding(x, b) {
		v.registry.Delete(bindingKind, v.bindingNames(x, b)...)
	}
}

// lastingBinding reports whether both ends of a binding last.
func lastingBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) bool {
	if to := b.Destination.Exchange; to != nil {
		return x.Durable && to.Durable
	}
	return x.Durable && b.Destination.Queue.lasting()
}

func (v *VHost) bindingNames(x *route.Exchange[*Queue], b route.Binding[*Queue]) []string {
	kind, name := toQueue, ""
	if to := b.Destination.Exchange; to != nil {
		kind, name = toExchange, to.Name
	} else {
		name = b.Destination.Queue.Name()
	}
	return []string{v.name, x.Name, kind, name, b.Key, argumentsHash(b)}
}

// argumentsHash tells bindings apart that differ in nothing else.
func argumentsHash(b route.Binding[*Queue]) string {
	if args, _ := b.Arguments.(amqpwire.Table); len(args) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(b.Encoded))
	return hex.EncodeToString(sum[:])
}

// forget removes everything in the virtual host from the registry, and keeps nothing from now on.
func (v *VHost) forget() {
	for x := range v.routes.Exchanges() {
		for b := range x.Bindings() {
			v.unkeepBinding(x, b)
		}
		v.unkeepExchange(x) // of those that every virtual host has there is nothing to remove
	}
	for _, q := range v.queues {
		v.unkeepQueue(q)
	}
	v.registry.Delete(hostKind, v.name)
	v.registry = nil
}
