package vhost

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Kinds of documents in the registry. The comments list the names of each document.
const (
	hostKind     = "vhost"    // name
	exchangeKind = "exchange" // virtual host, name
	queueKind    = "queue"    // virtual host, name
	policyKind   = "policy"   // virtual host, userPolicy or operatorPolicy, name
	bindingKind  = "binding"  // virtual host, source, toQueue or toExchange, destination, routing key, hash of the arguments
)

const (
	toQueue    = "queue"
	toExchange = "exchange"
)

type hostDocument struct {
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	QueueType   string   `json:"queue_type,omitempty"`
	Protected   *bool    `json:"protected,omitempty"`
}

type exchangeDocument struct {
	Type       string      `json:"type"`
	AutoDelete bool        `json:"auto_delete,omitempty"`
	Internal   bool        `json:"internal,omitempty"`
	Arguments  encodedArgs `json:"arguments,omitempty"`
	ID         uint64      `json:"id,omitempty"` // key of the waiting messages in the store
}

type queueDocument struct {
	ID         uint64      `json:"id"` // key of the messages in the store
	AutoDelete bool        `json:"auto_delete,omitempty"`
	Arguments  encodedArgs `json:"arguments,omitempty"`
}

// The second name of a policy in the registry.
const (
	userPolicy     = "policy"
	operatorPolicy = "operator"
)

type policyDocument struct {
	Pattern    string     `json:"pattern"`
	ApplyTo    string     `json:"apply_to"`
	Priority   float64    `json:"priority,omitempty"`
	Definition Definition `json:"definition"`
}

type bindingDocument struct {
	Arguments encodedArgs `json:"arguments,omitempty"`
}

// encodedArgs contains arguments in the wire format, because JSON does not distinguish integer types. It is empty if there
// are no arguments.
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

func (v *VHost) saveHost(about About) {
	v.registry.Set(hostDocument(about), hostKind, v.name)
}

func (v *VHost) policyNames(p *Policy) []string {
	kind := userPolicy
	if p.Operator {
		kind = operatorPolicy
	}
	return []string{v.name, kind, p.Name}
}

func (v *VHost) savePolicy(p *Policy) {
	v.registry.Set(policyDocument{p.Pattern, p.ApplyTo, p.Priority, p.Definition}, policyKind, v.policyNames(p)...)
}

func (v *VHost) deleteSavedPolicy(p *Policy) { v.registry.Delete(policyKind, v.policyNames(p)...) }

func (v *VHost) saveExchange(name string, id uint64, d *amqpwire.ExchangeDeclare) error {
	if !d.Durable {
		return nil
	}
	args, err := encodeArgs(d.Arguments)
	if err == nil {
		v.registry.Set(exchangeDocument{d.Type, d.AutoDelete, d.Internal, args, id}, exchangeKind, v.name, name)
	}
	return err
}

func (v *VHost) deleteSavedExchange(x *route.Exchange[*Queue]) {
	if x.Durable {
		v.registry.Delete(exchangeKind, v.name, x.Name)
	}
}

func (v *VHost) saveQueue(name string, id uint64, d *amqpwire.QueueDeclare) error {
	if !isDurable(d) {
		return nil
	}
	args, err := encodeArgs(d.Arguments)
	if err == nil {
		v.registry.Set(queueDocument{id, d.AutoDelete, args}, queueKind, v.name, name)
	}
	return err
}

// isDurable reports whether a queue survives a restart of the broker. The broker deletes an exclusive queue with its
// connection, even if the queue is durable.
func isDurable(d *amqpwire.QueueDeclare) bool { return d.Durable && !d.Exclusive }

func (q *Queue) isDurable() bool { return q.Durable && q.Owner == nil }

func (v *VHost) deleteSavedQueue(q *Queue) {
	if q.isDurable() {
		v.registry.Delete(queueKind, v.name, q.Name())
	}
}

func (v *VHost) saveBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) {
	if !isDurableBinding(x, b) {
		return
	}
	args, _ := b.Arguments.(amqpwire.Table)
	encoded, err := encodeArgs(args)
	if err != nil {
		return // cannot fail, because Bind has already encoded the arguments
	}
	v.registry.Set(bindingDocument{encoded}, bindingKind, v.bindingNames(x, b)...)
}

func (v *VHost) deleteSavedBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) {
	if isDurableBinding(x, b) {
		v.registry.Delete(bindingKind, v.bindingNames(x, b)...)
	}
}

// isDurableBinding reports whether the source and the destination of a binding survive a restart.
func isDurableBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) bool {
	if to := b.Destination.Exchange; to != nil {
		return x.Durable && to.Durable
	}
	return x.Durable && b.Destination.Queue.isDurable()
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

// argumentsHash distinguishes bindings that differ only in their arguments.
func argumentsHash(b route.Binding[*Queue]) string {
	if args, _ := b.Arguments.(amqpwire.Table); len(args) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(b.Encoded))
	return hex.EncodeToString(sum[:])
}

// deleteSavedAll removes all objects of the virtual host from the registry and disables further saves.
func (v *VHost) deleteSavedAll() {
	for x := range v.routes.Exchanges() {
		for b := range x.Bindings() {
			v.deleteSavedBinding(x, b)
		}
		v.deleteSavedExchange(x) // has no effect on the predeclared exchanges
	}
	for _, q := range v.queues {
		v.deleteSavedQueue(q)
	}
	for _, operator := range []bool{false, true} {
		for _, p := range v.policiesFor(operator) {
			v.deleteSavedPolicy(p)
		}
	}
	v.registry.Delete(hostKind, v.name)
	v.registry = nil
}
